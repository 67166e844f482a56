"""UAN: Universal Adaptation Network.

You et al., "Universal Domain Adaptation", CVPR 2019.

Where paper and released code differ, and what is the default here:

* Classification: released, a cross-entropy with softmax on softmax outputs; default, on logits, see
  `double_softmax`.
* Weights: scaled within each batch, with temperature 10 in w^s, as released; if all weights of a
  batch are equal, released 0/0, default ones.
* Gradient reversal: released, the coefficient rises over 10,000 calls, two per step; default, over
  `ramp`, the same share of the run (5,000 of Office-31's 20,000 steps).
* Batch norm: released, the ResNet's first layer stays in evaluation mode; default, all layers
  train, or none with pretrained weights (`--batch-norm`).
* w^t = w0: released, known; default, unknown.
"""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from unida.errors import require
from unida.losses import domain_adversarial
from unida.methods.base import About, Method, require_range
from unida.models.backbones.base import Backbone
from unida.models.layers import Discriminator, reversal_strength, reverse_gradient
from unida.ops.transferability import normalise_weights, source_weight, target_weight
from unida.types import Batch, Outputs, Sizes


@dataclass(frozen=True)
class UANConfig:
    """Settings of UAN, in the paper's symbols.

    Attributes:
        w0: least w^t of a known image.
        lam: λ, weight of the adversarial loss.
        temperature: of the softmax whose entropy enters w^s.
        ramp: share of the run over which the gradient reversal reaches full strength.
        width: features after the bottleneck.
        hidden: neurons of the hidden layers of D and D'.
        dropout: in D and D'.
        double_softmax: the released code's classification loss.
    """

    w0: float = -0.5
    lam: float = 1.0
    temperature: float = 10.0
    ramp: float = 0.25
    width: int = 256
    hidden: int = 1024
    dropout: float = 0.5
    double_softmax: bool = False

    def __post_init__(self) -> None:
        require_range(self, -1, 1, "w0")
        require_range(self, 0, 1000, "lam")
        require_range(self, 0.01, 1000, "temperature")
        require(0 < self.ramp <= 1000, "ramp", self.ramp, "more than 0, at most 1000")
        require(0 <= self.dropout < 1, "dropout", self.dropout, "from 0 up to, not including, 1")
        require_range(self, 1, 16384, "width", "hidden")


class UAN(Method):
    about = About(
        paper="Universal Domain Adaptation",
        venue="CVPR 2019",
        rule="source-likeness minus entropy at most w0",
        spec="released code",
    )
    Config = UANConfig
    config: UANConfig

    def __init__(self, config: UANConfig, backbone: Backbone, sizes: Sizes) -> None:
        super().__init__(config, backbone, sizes)
        self.bottleneck = nn.Linear(backbone.out_features, config.width)
        self.classifier = nn.Linear(config.width, sizes.n_classes)  # G
        self.adversary = Discriminator(config.width, config.hidden, config.dropout)  # D
        self.auxiliary = Discriminator(config.width, config.hidden, config.dropout)  # D'

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        c = self.config
        g_s = self.bottleneck(self.backbone(batch.source_views[0]))  # one forward per domain
        g_t = self.bottleneck(self.backbone(batch.target_views[0]))
        logits_s, logits_t = self.classifier(g_s), self.classifier(g_t)
        scores = logits_s.softmax(1) if c.double_softmax else logits_s

        # D' separates the domains without a gradient to the features.
        aux_s, aux_t = self.auxiliary(g_s.detach()), self.auxiliary(g_t.detach())
        w_s = normalise_weights(source_weight(logits_s, aux_s.sigmoid(), c.temperature).detach())
        w_t = normalise_weights(target_weight(logits_t, aux_t.sigmoid()).detach())

        strength = reversal_strength(10 * batch.step / (c.ramp * self.sizes.steps))
        d_s, d_t = (self.adversary(reverse_gradient(g, strength)) for g in (g_s, g_t))
        return {
            "ce": F.cross_entropy(scores, batch.source_labels),  # E_G
            "auxiliary": domain_adversarial(aux_s, aux_t),  # E_D'
            "adversarial": c.lam * domain_adversarial(d_s, d_t, w_s, w_t),  # λ E_D
        }

    def predict(self, images: Tensor) -> Outputs:
        """Unknown iff w^t ≤ w0."""
        g = self.bottleneck(self.backbone(images))
        logits = self.classifier(g)
        w_t = target_weight(logits, self.auxiliary(g).sigmoid())
        return Outputs(logits.softmax(1), self.config.w0 - w_t, g)
