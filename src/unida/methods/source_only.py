"""Source only: cross-entropy on the source, the baseline that uses no target image.

OVANet's recipe without its open-set and target terms, for a fair comparison with SAN. Reject rule:
entropy above half its maximum, as in DANCE (NeurIPS 2020).
"""

import math
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from unida.methods.base import About, Method
from unida.models.backbones.base import Backbone
from unida.types import Batch, Outputs, Sizes


@dataclass(frozen=True)
class SourceOnlyConfig:
    """No settings."""


class SourceOnly(Method):
    about = About(
        paper="Cross-entropy on the source",
        venue="baseline",
        rule="entropy above half its maximum",
        spec="released code",
    )
    Config = SourceOnlyConfig
    capturable = True
    target_views = ()

    def __init__(self, config: SourceOnlyConfig, backbone: Backbone, sizes: Sizes) -> None:
        super().__init__(config, backbone, sizes)
        self.classifier = nn.Linear(backbone.out_features, sizes.n_classes, bias=False)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.classifier(self.backbone(batch.source_views[0]))
        return {"ce": F.cross_entropy(logits, batch.source_labels)}

    def predict(self, images: Tensor) -> Outputs:
        """Unknown iff H(p) > ½ ln K."""
        y = self.backbone(images)
        log_probs = self.classifier(y).log_softmax(1)
        probs = log_probs.exp()
        entropy = -(probs * log_probs).sum(1)
        return Outputs(probs, entropy - 0.5 * math.log(self.sizes.n_classes), y)
