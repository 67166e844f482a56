"""A trained method with its refiner, or several of them: images → outputs."""

import copy
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from unida.decision.refinement import Refiner
from unida.errors import require
from unida.methods.base import Method
from unida.models.backbones.base import Backbone, precomputed_features
from unida.types import Outputs


class Predictor(nn.Module):
    """A method, then its refiner if it has one."""

    def __init__(self, method: Method, refiner: Refiner | None = None) -> None:
        super().__init__()
        self.method, self.refiner = method, refiner

    @property
    def backbone(self) -> Backbone:
        return self.method.backbone

    def forward(self, images: Tensor) -> Outputs:
        return self.predict(images)[0]

    def predict(self, images: Tensor) -> tuple[Outputs, Tensor]:
        """Refined outputs, and the backbone's features of the images (B, D)."""
        outputs, y = self.classify(images)
        return self.refine(outputs, y), y

    def classify(self, images: Tensor) -> tuple[Outputs, Tensor]:
        """Outputs of the method alone, and the backbone's features of the images (B, D)."""
        y = self.method.backbone(images)
        return self.method.predict(y), y

    def refine(self, outputs: Outputs, backbone_features: Tensor) -> Outputs:
        """Apply the refiner, if any."""
        if self.refiner is None:
            return outputs
        return self.refiner.transform(outputs, backbone_features)


class Ensemble(nn.Module):
    """The mean of several predictors, trained one by one from seeds of their own.

    The backbone is the first member's. A member without a network of its own is given its features:
    the first one always, all of them where the backbone was frozen.
    """

    def __init__(self, members: Sequence[Predictor], backbone: Backbone) -> None:
        super().__init__()
        self.members = cast(Sequence[Predictor], nn.ModuleList(members))
        self.backbone = backbone

    @property
    def method(self) -> Method:
        """The first member's, for what all members have in common."""
        return self.members[0].method

    @property
    def shares_backbone(self) -> bool:
        return all(member.backbone.is_precomputed for member in self.members)

    def forward(self, images: Tensor) -> Outputs:
        return self.predict(images)[0]

    def predict(self, images: Tensor) -> tuple[Outputs, Tensor]:
        """Mean outputs, and the features of the first member's backbone (B, D)."""
        y = self.backbone(images)
        outputs = [
            member(y if member.backbone.is_precomputed else images) for member in self.members
        ]
        return mean_outputs(outputs), y


AnyPredictor = Predictor | Ensemble


def mean_outputs(outputs: Sequence[Outputs]) -> Outputs:
    """Mean scores and probabilities; features side by side."""
    if len(outputs) == 1:
        return outputs[0]
    return Outputs(
        probs=torch.stack([one.probs for one in outputs]).mean(0),
        unknown_score=torch.stack([one.unknown_score for one in outputs]).mean(0),
        features=torch.cat([one.features for one in outputs], 1),
    )


def member_backbones(backbone: Backbone, n: int, shared: bool) -> list[Backbone]:
    """The backbones of n members: itself and copies, or placeholders for shared features."""
    if n == 1:
        return [backbone]
    if shared:
        return [_placeholder(backbone) for _ in range(n)]
    return [backbone, *(copy.deepcopy(backbone) for _ in range(n - 1))]


def check_ensemble(method: Method, backbone: Backbone, n: int, name: str) -> None:
    """Refuse an ensemble of a method that does not predict single images from features alone."""
    fits = not method.about.transductive and method.backbone is backbone
    allowed = f"1: {name} does not predict single images from the backbone's features alone"
    require(n == 1 or fits, "ensemble", n, allowed)


def combine(members: Sequence[Predictor], backbone: Backbone) -> AnyPredictor:
    """Make an ensemble of the members; a single one is returned as it is."""
    if len(members) == 1:
        return members[0]
    if members[0].backbone is backbone:
        members[0].method.backbone = _placeholder(backbone)
    return Ensemble(members, backbone)


def _placeholder(backbone: Backbone) -> Backbone:
    """What stands for a backbone in a method that is given its features."""
    place = precomputed_features(backbone.out_features)
    place.pretrained = backbone.pretrained
    return place
