"""Several models of one method, each trained from its own seed, that judge as one.

Runs of different seeds agree on most images and differ on the hard ones, above all because they
saw the batches in another order. The mean of what a few of them say differs less, and ranks better
than most of them.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from unida.errors import require
from unida.methods.base import Method
from unida.models.backbones.base import Backbone, precomputed_features
from unida.types import Batch, Outputs


class Ensemble(Method):
    """Says the mean of what its members say; they were trained one by one.

    The backbone is the first member's. A member that has no network of its own is handed its
    features: the first one always, all of them where the backbone was frozen.
    """

    def __init__(self, members: Sequence[Method], backbone: Backbone) -> None:
        first = members[0]
        super().__init__(first.config, backbone, first.sizes)
        self.members = nn.ModuleList(members)
        self.about = first.about  # type: ignore[misc]
        self.source_views, self.target_views = first.source_views, first.target_views
        self.training_only = tuple(
            f"members.{i}.{name}" for i, one in enumerate(members) for name in one.training_only
        )

    @property
    def one_network(self) -> bool:
        """Whether all members share the backbone."""
        return all(one.backbone.is_precomputed for one in self.each())

    def each(self) -> Sequence[Method]:
        return list(self.members)  # type: ignore[arg-type]

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        raise NotImplementedError("Members are trained one by one.")

    def predict(self, images: Tensor) -> Outputs:
        y = self.backbone(images)
        said = [one.predict(y if one.backbone.is_precomputed else images) for one in self.each()]
        return Outputs(
            probs=torch.stack([one.probs for one in said]).mean(0),
            unknown_score=torch.stack([one.unknown_score for one in said]).mean(0),
            features=torch.cat([one.features for one in said], 1),
        )


def backbones(backbone: Backbone, n: int, one_network: bool) -> list[Backbone]:
    """What n members are built on: the backbone and copies of it, to be trained apart.

    Where they share one network, places for its features instead.
    """
    if n == 1:
        return [backbone]
    if one_network:
        return [_features_of(backbone) for _ in range(n)]
    return [backbone, *(copy.deepcopy(backbone) for _ in range(n - 1))]


def check_ensemble(method: Method, backbone: Backbone, n: int, name: str) -> None:
    """Refuses several members of a method whose verdicts are not a function of y, one by one."""
    alone = not method.about.transductive and method.backbone is backbone
    require(
        n == 1 or alone,
        "ensemble",
        n,
        f"1: {name} does not judge one image at a time by the backbone's features alone",
    )


def make_ensemble(members: Sequence[Method], backbone: Backbone) -> Method:
    """The members as one method; one alone is itself."""
    if len(members) == 1:
        return members[0]
    if members[0].backbone is backbone:
        members[0].backbone = _features_of(backbone)
    return Ensemble(members, backbone)


def _features_of(backbone: Backbone) -> Backbone:
    """What stands for a backbone in a method that is handed its features."""
    place = precomputed_features(backbone.out_features)
    place.pretrained = backbone.pretrained
    return place
