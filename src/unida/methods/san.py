"""SAN: Soft-contrastive All-in-one Network.

Zang et al., "Boosting Novel Category Discovery Over Domains with Soft Contrastive Learning and
All in One Classifier", ICCV 2023.

Where paper and released code differ, and what is the default here:

* SCL: the printed kernel is flat on real features, and so is the released one; default `scaled`,
  the same idea well posed (see `unida.losses.soft_contrastive`).
* Third term of L_AIO: printed ln(c^y − max c̃), released a bounded log-sigmoid; see `third`.
* Target entropy: in the released code only. Without AIO (`classifier`): in the paper's ablation.
* Head: left open in the paper; the released one hashes z, by unit rows, which here may grow.
* H: as wide as the features and 100 times slower when released; see `width`, `projection_lr`.
* Neighbours, anchors: in neither. SCL trains alike images to be together; verdicts use that, too.
* Batch norm sees one domain at a time, in both; here, with weights, it keeps their statistics.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from unida.data.augmentations import WEAK_VIEW, strong_view
from unida.decision.knn import USUAL, Neighbours
from unida.errors import require
from unida.losses import all_in_one, info_nce, one_vs_all, open_entropy, soft_contrastive
from unida.methods.base import (
    About,
    FeatureExtractor,
    Group,
    Method,
    require_range,
    resolve_bounded,
)
from unida.models.backbones.base import Backbone
from unida.models.heads import AllInOne, ClosedAndOpen, Projection, gap_of_winner
from unida.types import Batch, Outputs, Sizes

WITH_WEIGHTS = {"lam": 3.0, "bandwidth": 1.0, "hidden": 1.0, "projection_lr": 1.0}
FROM_SCRATCH = {"lam": 1.0, "bandwidth": 0.3, "hidden": 2.0, "projection_lr": 0.01}
"""Settings where none is given: a network that knows nothing yet is followed less."""


@dataclass(frozen=True)
class SANConfig:
    """Settings of SAN, in the paper's symbols. None: see `_filled`.

    Attributes:
        lam: λ, weight of the contrastive loss on the target.
        beta: β, weight of L_AIO on the source.
        alpha: α, the prior that two views of one image belong together.
        contrast: form of the contrastive loss; `info_nce` is the ablation, `none` leaves it out.
        bandwidth: unit of squared distances of z in Q (`scaled`).
        sharpness: of the likeness P of two images (`scaled`); the larger, the fewer are alike.
        classifier: `closed_and_open` is the ablation, OVANet's heads and losses instead of AIO's.
        third: form of L_AIO (and of its third term).
        third_weight: factor of the third term.
        top_n: N, classes in the softmax of L_AIO; by default all of them, at most the paper's 20.
        entropy: weight of the open-set entropy on the target (OVANet's; released code only).
        reads: what the classifier sees, z as in the paper or y; H then serves the contrast alone.
        head: All-in-One classifier, `linear` (paper) or `hashed` (released).
        width: numbers in z, 0 for the features'; by default 512, from scratch theirs if fewer.
        hidden: neurons of H's hidden layer, as a multiple of `width`.
        projection_lr: learning rate of H, as a factor of the run's.
        crop: least share of an image in a target view.
        neighbours: target images with a say in the verdict on another; by default 6; 0 for none.
        nearest_by: what these are found by; by default z and then y with anchors, else z.
        anchors: judge by likeness to sure verdicts' images, if enough
        (`unida.decision.prototypes`).
    """

    lam: float | None = None
    beta: float = 0.5
    alpha: float = 0.5
    contrast: Literal["scaled", "paper", "released", "info_nce", "none"] = "scaled"
    bandwidth: float | None = None
    sharpness: float = 6.0
    classifier: Literal["all_in_one", "closed_and_open"] = "all_in_one"
    third: Literal["log", "sigmoid"] = "sigmoid"
    third_weight: float = 1.2
    top_n: int | None = None
    entropy: float = 0.1
    reads: Literal["z", "y"] = "z"
    head: Literal["linear", "hashed"] = "hashed"
    width: int | None = None
    hidden: float | None = None
    projection_lr: float | None = None
    crop: float = 0.7
    neighbours: int | None = None
    nearest_by: Literal["z", "z_then_y"] | None = None
    anchors: bool | None = None

    def __post_init__(self) -> None:
        require_range(self, 0, 1000, "lam", "beta", "third_weight", "entropy", "neighbours")
        require_range(self, 0, 100, "projection_lr")
        require_range(self, 0, 1, "alpha")
        require(0 < self.crop <= 1, "crop", self.crop, "more than 0, at most 1")
        require(self.top_n is None or self.top_n >= 2, "top_n", self.top_n, "none, or 2 or more")
        require_range(self, 0, 16384, "width")
        require_range(self, 0.01, 100, "bandwidth", "sharpness")
        require_range(self, 0.1, 10, "hidden")


class SAN(Method):
    about = About(
        paper="Boosting Novel Category Discovery Over Domains with Soft Contrastive Learning and "
        "All in One Classifier",
        venue="ICCV 2023",
        rule="the largest of all 2K outputs says 'is not k', with anchors as often as it does",
        spec="released code",
    )
    Config = SANConfig
    config: SANConfig
    capturable = True

    def __init__(self, config: SANConfig, backbone: Backbone, sizes: Sizes) -> None:
        config = _filled(config, backbone.pretrained, sizes)  # with a model it is stored as built
        super().__init__(config, backbone, sizes)
        features, n_classes, hidden = backbone.out_features, sizes.n_classes, config.hidden or 1.0
        usual = 512 if backbone.pretrained else min(features, 512)
        width = usual if config.width is None else config.width or features
        self.projection = Projection(features, max(1, round(hidden * width)), width)  # H
        seen = width if config.reads == "z" else features
        self.classifier: AllInOne | ClosedAndOpen = (
            AllInOne(seen, n_classes, hashed=config.head == "hashed")  # C^AIO
            if config.classifier == "all_in_one"
            else ClosedAndOpen(seen, n_classes)
        )
        k = resolve_bounded(
            "neighbours", config.neighbours, USUAL, sizes.n_target - 1, "other images"
        )
        by = (seen, features) if config.nearest_by == "z_then_y" else (seen,)
        self.neighbours = Neighbours(sizes.n_target, by, n_classes, k, bool(config.anchors))
        self.top_n = resolve_bounded("top_n", config.top_n, 20, n_classes, "classes")
        self.source_views = (WEAK_VIEW,)
        # A frozen network cannot bring strongly changed images together with plain ones.
        self.target_views = (WEAK_VIEW if sizes.frozen else strong_view(config.crop),) * 2

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        c, n = self.config, len(batch.source_labels)
        y = self.backbone.each((*batch.source_views, *batch.target_views))
        z = self.projection(*y)
        seen = z[: 2 * n] if c.reads == "z" else torch.cat(y[:2])
        closed, pairs = self._outputs(seen)  # of the source and of target view 0
        terms = self._on_source(closed[:n], pairs[:n], batch.source_labels)
        if c.contrast != "none":
            terms["scl"] = (c.lam or 0) * self._contrast(torch.cat(y[1:]), z[n:])
        if c.entropy:
            terms["entropy"] = c.entropy * open_entropy(pairs[n:])
        return terms

    def _on_source(self, closed: Tensor, pairs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        c = self.config
        terms = {"ce": F.cross_entropy(closed, labels)}  # Eq. (9)
        if c.classifier == "all_in_one":
            aio = all_in_one(pairs, labels, self.top_n, c.third, third_weight=c.third_weight)
            return terms | {"aio": c.beta * aio}  # Eqs. (6)–(8)
        return terms | {"open": one_vs_all(pairs, labels)}

    def _outputs(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Logits over the classes (B, K) and of "is not k", "is k" (B, 2, K)."""
        if isinstance(self.classifier, ClosedAndOpen):
            closed, pairs = self.classifier(z)
            return closed, pairs
        pairs = self.classifier(z)
        return pairs[:, 1], pairs

    def _contrast(self, y: Tensor, z: Tensor) -> Tensor:
        c = self.config
        if c.contrast == "info_nce":
            return info_nce(z)  # Eq. (1)
        how = {"bandwidth_z": c.bandwidth, "sharpness": c.sharpness}
        return soft_contrastive(y, z, c.contrast, c.alpha, **how)  # type: ignore[arg-type]

    def predict(self, images: Tensor) -> Outputs:
        """Unknown iff some c̃^k is the largest output; the softmax would not change the order."""
        y = self.backbone(images)
        return self.neighbours.heard(self._alone(y), y)

    def _alone(self, y: Tensor) -> Outputs:
        seen = self.projection(y) if self.config.reads == "z" else y
        closed, pairs = self._outputs(seen)
        if self.config.classifier == "all_in_one":
            return Outputs(closed.softmax(1), pairs[:, 0].amax(1) - closed.amax(1), seen)
        return Outputs(closed.softmax(1), gap_of_winner(closed, pairs), seen)

    def fit_target(self, look: FeatureExtractor) -> None:
        self.neighbours.ask(look, self._alone)

    def head_groups(self) -> list[Group]:
        return [
            Group("projection", list(self.projection.parameters()), self.config.projection_lr or 0),
            Group("classifier", list(self.classifier.parameters())),
        ]

    def after_step(self, batch: Batch) -> None:
        if isinstance(self.classifier, ClosedAndOpen):
            self.classifier.open.scale_rows()  # as OVANet


def _filled(config: SANConfig, pretrained: bool, sizes: Sizes) -> SANConfig:
    usual: dict[str, Any] = dict(WITH_WEIGHTS if pretrained else FROM_SCRATCH)
    heard = pretrained and config.neighbours != 0 and sizes.n_target > 1
    twice = heard and config.anchors is not False
    usual |= {"anchors": heard, "nearest_by": "z_then_y" if twice else "z"}
    left_out = {name: value for name, value in usual.items() if getattr(config, name) is None}
    return replace(config, **left_out)
