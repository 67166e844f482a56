"""SAN: Soft-contrastive All-in-one Network.

Zang et al., "Boosting Novel Category Discovery Over Domains with Soft Contrastive Learning and
All in One Classifier", ICCV 2023.

Where paper and released code differ, and what is the default here:
* SCL: the printed and the released kernel are flat on real features; default `scaled`.
* Third term of L_AIO: printed ln(c^y − max c̃), released a bounded log-sigmoid; default released.
* Target entropy and hashed classifier: in the released code only; default released.
* H: released as wide as y, with 0.01 of the learning rate, no momentum and a weight decay of its
  own; default 512 and the run's, with weights. Printed, two layers of 2048 neurons.

The presets `san-paper` and `san-released` are the two recipes; the settings that the authors ran on
each data set are in its protocol (docs/methods/san.md).
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from unida.data.augmentations import WEAK_VIEW, strong_view
from unida.losses import all_in_one, info_nce, one_vs_all, open_entropy, soft_contrastive
from unida.methods.base import About, Method, ParameterGroup, require_range, resolve_bounded
from unida.models.backbones.base import Backbone
from unida.models.heads import AllInOne, ClosedAndOpen, Projection, pair_score
from unida.types import Batch, Outputs, Sizes

AUTO_PRETRAINED = {"lam": 3.0, "bandwidth": 1.0, "hidden": 1.0, "projection_lr": 1.0}
AUTO_FROM_SCRATCH = {"lam": 1.0, "bandwidth": 0.3, "hidden": 2.0, "projection_lr": 0.01}


@dataclass(frozen=True)
class SANConfig:
    """Settings of SAN, in the paper's symbols; None is resolved by `resolve_auto`.

    Attributes:
        lam, beta: λ and β, weights of the contrastive loss on the target and of L_AIO.
        alpha: α, the prior that two views of one image belong together.
        contrast: form of the contrastive loss; `info_nce` is the ablation, `none` leaves it out.
        bandwidth, sharpness: unit of squared distances of z in Q, and sharpness of P (`scaled`).
        sigma_y, near_rate: σ_P, divisor of squared distances of y, and augNearRate, divisor of the
            nearest neighbour's distance at which a second view is placed (`released`).
        classifier: `closed_and_open` is the ablation, OVANet's heads and losses instead of AIO's.
        third: form of the third term of L_AIO, and its weight `third_weight`.
        score: what an unknown score of zero means: `largest`, the paper's, that "is not k" and
            "is k" have equal maxima over all classes; `pair`, that they are equal for the most
            likely class, which does not depend on K.
        top_n: N, classes in the softmax of L_AIO; by default the paper's 20, or all if fewer.
        entropy: weight of the open-set entropy on the target; `head`: `hashed` when released.
        width: dimensions of z, 0 for those of y; `hidden` is H's hidden layer as a multiple of it.
        projection_lr: of H, a factor of the run's.
        projection_momentum, projection_decay: whether H has momentum, and its weight decay; by
            default the run's.
        crop: least share of an image in a view.
    """

    lam: float | None = None
    beta: float = 0.5
    alpha: float = 0.5
    contrast: Literal["scaled", "paper", "released", "info_nce", "none"] = "scaled"
    bandwidth: float | None = None
    sharpness: float = 6.0
    sigma_y: float = 10.0
    near_rate: float = 1e4
    classifier: Literal["all_in_one", "closed_and_open"] = "all_in_one"
    third: Literal["log", "sigmoid"] = "sigmoid"
    third_weight: float = 1.2
    score: Literal["largest", "pair"] = "largest"
    top_n: int | None = None
    entropy: float = 0.1
    head: Literal["linear", "hashed"] = "hashed"
    width: int | None = None
    hidden: float | None = None
    projection_lr: float | None = None
    projection_momentum: bool = True
    projection_decay: float | None = None
    crop: float = 0.7

    def __post_init__(self) -> None:
        require_range(self, 0, 1000, "lam", "beta", "third_weight", "entropy")
        require_range(self, 0, 100, "projection_lr", "projection_decay")
        require_range(self, 0, 1, "alpha")
        require_range(self, 0.01, 1, "crop")
        require_range(self, 2, 16384, "top_n")
        require_range(self, 0, 16384, "width")
        require_range(self, 0.01, 100, "bandwidth", "sharpness")
        require_range(self, 0.01, 1e6, "sigma_y")
        require_range(self, 1, 1e9, "near_rate")
        require_range(self, 0.1, 10, "hidden")

    def resolve_auto(self, pretrained: bool, n_features: int) -> "SANConfig":
        """Fill what is None: a network without pretrained weights is trusted less."""
        auto: dict[str, Any] = {"width": 512 if pretrained else min(n_features, 512)}
        auto |= AUTO_PRETRAINED if pretrained else AUTO_FROM_SCRATCH
        return replace(self, **{k: v for k, v in auto.items() if getattr(self, k) is None})


class SAN(Method):
    about = About(
        paper="Boosting Novel Category Discovery Over Domains with Soft Contrastive Learning and "
        "All in One Classifier",
        venue="ICCV 2023",
        rule="the largest of all 2K outputs is that of 'is not k'",
        spec="released code",
    )
    Config = SANConfig
    config: SANConfig
    capturable = True

    def __init__(self, config: SANConfig, backbone: Backbone, sizes: Sizes) -> None:
        features, n_classes = backbone.out_features, sizes.n_classes
        config = config.resolve_auto(backbone.pretrained, features)
        super().__init__(config, backbone, sizes)
        width = config.width or features
        self.projection = Projection(features, max(1, round((config.hidden or 1) * width)), width)
        self.classifier: AllInOne | ClosedAndOpen = (
            AllInOne(width, n_classes, hashed=config.head == "hashed")  # C^AIO
            if config.classifier == "all_in_one"
            else ClosedAndOpen(width, n_classes)
        )
        self.top_n = resolve_bounded("top_n", config.top_n, 20, n_classes, "classes")
        # A frozen network cannot bring strongly changed images together with plain ones.
        self.target_views = (WEAK_VIEW if sizes.frozen else strong_view(config.crop),) * 2

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        c, labels, n = self.config, batch.source_labels, len(batch.source_labels)
        y = self.backbone.each((*batch.source_views, *batch.target_views))
        z = self.projection(*y)
        closed, pairs = self.classifier(z[: 2 * n])  # the source and target view 0
        terms = {"ce": F.cross_entropy(closed[:n], labels)}  # Eq. (9)
        if c.classifier == "all_in_one":
            aio = all_in_one(pairs[:n], labels, self.top_n, c.third, third_weight=c.third_weight)
            terms["aio"] = c.beta * aio  # Eqs. (6)–(8)
        else:
            terms["open"] = one_vs_all(pairs[:n], labels)
        if c.contrast != "none":
            terms["scl"] = (c.lam or 0) * self._contrast(torch.cat(y[1:]), z[n:])
        if c.entropy:
            terms["entropy"] = c.entropy * open_entropy(pairs[n:])
        return terms

    def _contrast(self, y: Tensor, z: Tensor) -> Tensor:
        c = self.config
        if c.contrast == "info_nce":
            return info_nce(z)  # Eq. (1)
        how = {"bandwidth_z": c.bandwidth, "sharpness": c.sharpness}
        how |= {"sigma_y": c.sigma_y, "near_rate": c.near_rate}
        return soft_contrastive(y, z, c.contrast, c.alpha, **how)  # type: ignore[arg-type]  # Eq. (3)

    def predict(self, images: Tensor) -> Outputs:
        """Unknown iff some c̃^k is the largest output; the softmax would not change the order."""
        z = self.projection(self.backbone(images))
        closed, pairs = self.classifier(z)
        by_pair = self.config.score == "pair"
        score = (
            pair_score(closed, pairs) if by_pair else self.classifier.unknown_score(closed, pairs)
        )
        return Outputs(closed.softmax(1), score, z)

    def head_groups(self) -> list[ParameterGroup]:
        h, c = list(self.projection.parameters()), self.config
        own = (c.projection_lr or 0, c.projection_momentum, c.projection_decay)
        classifier = ParameterGroup("classifier", list(self.classifier.parameters()))
        return [ParameterGroup("projection", h, *own), classifier]

    def after_step(self, batch: Batch) -> None:
        if isinstance(self.classifier, ClosedAndOpen):  # as OVANet
            self.classifier.open.scale_rows()
