"""GATE: geometric anchor-guided adversarial and contrastive learning. A reconstruction.

Chen et al., "Geometric Anchor Correspondence Mining with Uncertainty Modeling for Universal Domain
Adaptation", CVPR 2022.

No code was released, and only the abstract was available: cross-domain anchors by random walks,
adversarial alignment of the whole, contrast of subgraphs, an unknown logit tied to an energy, mixed
features as unknowns, entropy of the open decision on the target. Numbers and exact forms are this
file's; results are no reproduction of the paper's. Choices:

* Walks run over the batch, not over a memory; r round trips replace higher-order attention.
* A sample's weight in the alignment is the probability that a walk of two steps returns to it, over
  the batch's mean; the gradient reversal reaches full strength over the run, as in DANN.
* The energy margin is the cross-entropy of the open decision, so that on mixed features it repeats
  the mixup term; the abstract gives no weight, `energy` is 0.1 like the other small terms.
* A tie between the unknown logit and the best class is unknown.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unida.errors import require
from unida.losses import domain_adversarial, energy_margin, subgraph_contrast, unknown_entropy
from unida.methods.base import About, Method, require_range, resolve_bounded
from unida.models.backbones.base import Backbone
from unida.models.heads import Neck
from unida.models.layers import Discriminator, reversal_strength, reverse_gradient
from unida.ops.mixing import mix_unknowns
from unida.ops.random_walk import (
    anchor_pairs,
    return_probability,
    subgraph_means,
    transition_matrix,
)
from unida.types import Batch, Outputs, Sizes


@dataclass(frozen=True)
class GATEConfig:
    """Settings of GATE; all values are a reconstruction.

    Attributes:
        mix: weight of the cross-entropy on mixed features.
        energy: weight of the energy margin, on the source and on mixed features.
        adv: weight of the adversarial alignment.
        sub: weight of the contrast of subgraph_means.
        ent: weight of the entropy of the open decision on the target.
        beta: β; λ of a mixture is drawn from Beta(β, β).
        tau: τ, temperature of the walks and of the contrast.
        r: round trips of a walk before its last step.
        n: neighbours of the anchor in a subgraph; by default 4, or fewer in a small batch.
        width: dimensions of z.
        hidden: neurons of the discriminator's hidden layers.
        dropout: in the discriminator.
    """

    mix: float = 0.5
    energy: float = 0.1
    adv: float = 0.1
    sub: float = 0.1
    ent: float = 0.1
    beta: float = 2.0
    tau: float = 0.1
    r: int = 1
    n: int | None = None
    width: int = 256
    hidden: int = 1024
    dropout: float = 0.5

    def __post_init__(self) -> None:
        require_range(self, 0, 1000, "mix", "energy", "adv", "sub", "ent")
        require_range(self, 0.1, 100, "beta")
        require_range(self, 0.02, 10, "tau")
        require_range(self, 0, 10, "r")
        require(0 <= self.dropout < 1, "dropout", self.dropout, "from 0 to below 1")
        require(self.n is None or self.n >= 1, "n", self.n, "none, or 1 or more")
        require_range(self, 1, 16384, "width", "hidden")


class GATE(Method):
    about = About(
        paper="Geometric Anchor Correspondence Mining with Uncertainty Modeling for Universal "
        "Domain Adaptation",
        venue="CVPR 2022",
        rule="the unknown logit is the largest",
        spec="reconstruction",
    )
    Config = GATEConfig
    config: GATEConfig

    def __init__(self, config: GATEConfig, backbone: Backbone, sizes: Sizes) -> None:
        super().__init__(config, backbone, sizes)
        self.neck = Neck(backbone.out_features, config.width)
        self.classifier = nn.Linear(config.width, sizes.n_classes + 1)  # the last is ℓ_u
        self.discriminator = Discriminator(config.width, config.hidden, config.dropout)
        self.n = resolve_bounded("n", config.n, 4, sizes.batch - 1, "other images in a batch")

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        c = self.config
        z_s = self.neck(self.backbone(batch.source_views[0]))  # one forward per domain
        z_t = self.neck(self.backbone(batch.target_views[0]))
        logits_s = self.classifier(z_s)
        mix, margin = self._unknown_terms(z_s, logits_s, batch.source_labels)
        adv, sub = self._alignment_terms(z_s, z_t, batch.step)
        return {
            "ce": F.cross_entropy(logits_s, batch.source_labels),  # over K + 1
            "mix": c.mix * mix,
            "energy": c.energy * margin,
            "adv": c.adv * adv,
            "sub": c.sub * sub,
            "ent": c.ent * unknown_entropy(*_split_logits(self.classifier(z_t))),
        }

    def _unknown_terms(self, z: Tensor, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy of mixed features as unknown; energy margins of source and mixtures."""
        margin = energy_margin(*_split_logits(logits), known=True)
        beta = torch.full((len(z),), self.config.beta)
        draws = torch.distributions.Beta(beta, beta).sample(), torch.rand(len(z), len(z))
        # Drawn on the CPU: the same on every device, and not every device has Beta.
        mixed = mix_unknowns(z, labels, *(torch.as_tensor(d, device=z.device) for d in draws))
        if len(mixed) == 0:  # a batch of one class
            return 0 * z.sum(), margin
        mix = energy_margin(*_split_logits(self.classifier(mixed)), known=False)  # −ln p_u
        return mix, margin + mix

    def _alignment_terms(self, z_s: Tensor, z_t: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Adversarial alignment of the domains, and contrast of the anchors' subgraphs."""
        c = self.config
        unit_s, unit_t = F.normalize(z_s), F.normalize(z_t)
        with torch.no_grad():
            forth, back = (
                transition_matrix(unit_s, unit_t, c.tau),
                transition_matrix(unit_t, unit_s, c.tau),
            )
            w_s, w_t = return_probability(forth, back), return_probability(back, forth)
            i, j = anchor_pairs(forth, back, c.r)
        strength = reversal_strength(10 * step / self.sizes.steps)
        d_s, d_t = (self.discriminator(reverse_gradient(z, strength)) for z in (z_s, z_t))
        adv = domain_adversarial(d_s, d_t, w_s / w_s.mean(), w_t / w_t.mean())
        g_s, g_t = subgraph_means(unit_s, i, self.n), subgraph_means(unit_t, j, self.n)
        return adv, subgraph_contrast(g_s, g_t, c.tau)

    def predict(self, images: Tensor) -> Outputs:
        """Unknown iff ℓ_u is the largest logit."""
        z = self.neck(self.backbone(images))
        known, unknown = _split_logits(self.classifier(z))
        return Outputs(known.softmax(1), unknown - known.amax(1), z)


def _split_logits(logits: Tensor) -> tuple[Tensor, Tensor]:
    """ℓ of the classes, (B, K), and ℓ_u, (B,)."""
    return logits[:, :-1], logits[:, -1]
