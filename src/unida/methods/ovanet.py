"""OVANet: One-vs-All Network.

Saito and Saenko, "OVANet: One-vs-All Network for Universal Domain Adaptation", ICCV 2021.

Where paper and released code differ, and what is the default here:

* Logarithms carry ε = 1e−8 in the released code, so a term is at most 18.4: as released.
* Rows of the open head have unit length, features and closed head have not (released code only):
  as released. There the rows are scaled before every forward outside the graph, here within it and
  set back to unit length after every step, so a step turns them as far.
* The released log also names the best H of a threshold search on target labels: nothing here does.
* p = ½ is known in the released code and unknown here; no real image is on the line.
"""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from unida.losses import one_vs_all, open_entropy
from unida.methods.base import About, Method, require_range
from unida.models.backbones.base import Backbone
from unida.models.heads import ClosedAndOpen
from unida.types import Batch, Outputs, Sizes


@dataclass(frozen=True)
class OVANetConfig:
    """Settings of OVANet: `lam`, λ, is the weight of the open-set entropy on the target."""

    lam: float = 0.1

    def __post_init__(self) -> None:
        require_range(self, 0, 1000, "lam")


class OVANet(Method):
    about = About(
        paper="OVANet: One-vs-All Network for Universal Domain Adaptation",
        venue="ICCV 2021",
        rule="the one-vs-all classifier of the likeliest class is negative",
        spec="released code",
    )
    Config = OVANetConfig
    config: OVANetConfig
    capturable = True

    def __init__(self, config: OVANetConfig, backbone: Backbone, sizes: Sizes) -> None:
        super().__init__(config, backbone, sizes)
        self.classifier = ClosedAndOpen(backbone.out_features, sizes.n_classes)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        labels = batch.source_labels
        f = self.backbone.each((batch.source_views[0], batch.target_views[0]))
        closed, pairs = self.classifier(f[0])
        _, target_pairs = self.classifier(f[1])
        return {
            "ce": F.cross_entropy(closed, labels),  # L_cls
            "open": one_vs_all(pairs, labels),  # L_ova, with the hardest negative
            "entropy": self.config.lam * open_entropy(target_pairs),  # λ L_ent
        }

    def predict(self, images: Tensor) -> Outputs:
        """Unknown iff "is not k" outweighs "is k" for the closed head's class k."""
        f = self.backbone(images)
        closed, pairs = self.classifier(f)
        return Outputs(closed.softmax(1), self.classifier.unknown_score(closed, pairs), f)

    def after_step(self, batch: Batch) -> None:
        self.classifier.open.scale_rows()
