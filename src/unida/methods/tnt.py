"""TNT: evidential neighbourhood contrastive learning. A reconstruction.

Chen et al., "Evidential Neighborhood Contrastive Learning for Universal Domain Adaptation",
AAAI 2022.

No code was released, and only the abstract was available: an evidential head, a multi-sample
contrast of mutual nearest neighbours within and across domains, uncertainty against confidence on
the target, a threshold per class. Numbers and exact forms are this file's; results are no
reproduction of the paper's. Choices, with their switches:

* Evidence is softplus (`evidence`), the label's loss is the digamma form (`form`), the weight κ of
  the KL penalty rises to 1 over the first tenth of the run (`anneal`).
* A positive is one of the anchor's k nearest in a memory that has the anchor among its own k
  nearest, per pair of domains; several positives share one logarithm (`positives`). Anchors are the
  batch, memories give no gradient, unvisited rows take no part.
* A memory row has momentum `memory`, reduced so that it forgets within a tenth of an image's visits
  in the run: over 600 steps on digits 0.9 keeps features of the untrained network (measured: H 42
  instead of 68).
* δ_k is the running mean of u over correctly classified source images of class k, plus one running
  standard deviation; the running weights are normalised, so early values count no more than later
  ones. A class without correct images has δ = 1: only u = 1 is rejected.
* Memories take `width` float32 numbers per image; steps process them in chunks.
* u = δ: default, unknown (the abstract's rule is u > δ).
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unida.errors import require
from unida.losses import evidential, evidential_kl, multi_sample_contrast, uncertainty_separation
from unida.methods.base import About, Method, require_range, resolve_bounded
from unida.models.backbones.base import Backbone
from unida.models.heads import Neck
from unida.models.layers import MemoryBank
from unida.ops.knn import memory_pairs
from unida.ops.uncertainty import dirichlet, dirichlet_uncertainty
from unida.types import Batch, Outputs, Sizes


@dataclass(frozen=True)
class TNTConfig:
    """Settings of TNT; all values are a reconstruction.

    Attributes:
        lam1: λ₁, weight of the contrast with mutual nearest neighbours.
        lam2: λ₂, weight of uncertainty against confidence.
        evidence: function from logits to evidence.
        form: form of the evidential loss on the source.
        anneal: share of the run over which κ rises from 0 to 1.
        positives: how several positives of one anchor combine.
        k: neighbours per direction and pair of domains; by default 5, or fewer in a small domain.
        tau: τ, temperature of the contrast.
        memory: momentum of the memories; less if the run visits an image seldom.
        ema: momentum of the running mean and deviation behind δ.
        margin: m as a share of the range of δ; closer to its threshold an image has no gradient.
        width: dimensions of z.
    """

    lam1: float = 0.1
    lam2: float = 0.1
    evidence: Literal["softplus", "exp", "relu"] = "softplus"
    form: Literal["digamma", "log", "squared"] = "digamma"
    anneal: float = 0.1
    positives: Literal["log_of_sum", "mean_of_logs"] = "log_of_sum"
    k: int | None = None
    tau: float = 0.05
    memory: float = 0.9
    ema: float = 0.99
    margin: float = 0.05
    width: int = 256

    def __post_init__(self) -> None:
        require_range(self, 0, 1000, "lam1", "lam2")
        require_range(self, 0, 1, "margin")
        for name in ("memory", "ema"):
            require(0 <= getattr(self, name) < 1, name, getattr(self, name), "from 0 to below 1")
        require(0 < self.anneal <= 1, "anneal", self.anneal, "more than 0, at most 1")
        require_range(self, 0.005, 10, "tau")
        require(self.k is None or self.k >= 1, "k", self.k, "none, or 1 or more")
        require_range(self, 1, 16384, "width")


class TNT(Method):
    about = About(
        paper="Evidential Neighborhood Contrastive Learning for Universal Domain Adaptation",
        venue="AAAI 2022",
        rule="uncertainty of the Dirichlet above the predicted class's threshold",
        spec="reconstruction",
    )
    Config = TNTConfig
    config: TNTConfig
    training_only = ("source.rows", "target.rows")
    u_mean: Tensor
    u_variance: Tensor
    u_count: Tensor

    def __init__(self, config: TNTConfig, backbone: Backbone, sizes: Sizes) -> None:
        super().__init__(config, backbone, sizes)
        self.neck = Neck(backbone.out_features, config.width)
        self.head = nn.Linear(config.width, sizes.n_classes)
        fewest = min(sizes.n_source, sizes.n_target)
        self.k = resolve_bounded("k", config.k, 5, fewest, "images of the smaller domain")
        self.source = MemoryBank(sizes.n_source, config.width)
        self.target = MemoryBank(sizes.n_target, config.width)
        for name in ("u_mean", "u_variance", "u_count"):  # of correctly classified source images
            self.register_buffer(name, torch.zeros(sizes.n_classes))
        self._pending: tuple[Tensor, ...] = ()  # set by `losses` for `after_step`

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        c, labels = self.config, batch.source_labels
        z_s, alpha_s = self._embed(batch.source_views[0])  # one forward per domain
        z_t, alpha_t = self._embed(batch.target_views[0])
        self._pending = (z_s.detach(), z_t.detach(), alpha_s.detach())

        kappa = min(1.0, batch.step / (c.anneal * self.sizes.steps))
        unit, index = (F.normalize(z_s), F.normalize(z_t)), (batch.source_index, batch.target_index)
        memories = (self.source.rows, self.target.rows)
        candidates = memory_pairs(unit, index, memories, self.k)  # P and A
        mnn = multi_sample_contrast(torch.cat(unit), candidates, c.tau, c.positives)
        y_hat, delta = alpha_t.argmax(1), self.delta()
        m, has_delta = c.margin * (delta.max() - delta.min()), (self.u_count > 0)[y_hat]
        uc = uncertainty_separation(dirichlet_uncertainty(alpha_t), delta[y_hat], m, has_delta)
        return {
            "edl": evidential(alpha_s, labels, c.form),  # L_edl
            "kl": kappa * evidential_kl(alpha_s, labels),  # κ KL
            "mnn": c.lam1 * mnn,  # λ₁ L_mnn, mutual nearest neighbours
            "uc": c.lam2 * uc,  # λ₂ L_uc, uncertainty against confidence
        }

    def _embed(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """z and the Dirichlet's α."""
        z = self.neck(self.backbone(images))
        return z, dirichlet(self.head(z), self.config.evidence)

    def delta(self) -> Tensor:
        """δ, one threshold per class."""
        deviation = self.u_variance.clamp_min(0).sqrt()
        return torch.where(self.u_count > 0, self.u_mean + deviation, 1.0)

    def after_step(self, batch: Batch) -> None:
        z_s, z_t, alpha_s = self._pending
        self.source.update(batch.source_index, z_s, self._momentum(self.sizes.n_source))
        self.target.update(batch.target_index, z_t, self._momentum(self.sizes.n_target))

        u, labels = dirichlet_uncertainty(alpha_s)[:, None], batch.source_labels
        correct = (alpha_s.argmax(1) == labels)[:, None]
        mask = F.one_hot(labels, self.sizes.n_classes) * correct  # (B, K)
        n = mask.sum(0)
        self.u_count += n > 0
        rate = (1 - self.config.ema) / (1 - self.config.ema ** self.u_count.clamp_min(1))
        rate = torch.where(n > 0, rate, 0) / n.clamp_min(1)
        self.u_mean += rate * (mask * (u - self.u_mean)).sum(0)
        self.u_variance += rate * (mask * ((u - self.u_mean).square() - self.u_variance)).sum(0)

    def _momentum(self, n: int) -> float:
        """Momentum with which one of n rows forgets within a tenth of its visits in the run."""
        visits = self.sizes.steps * self.sizes.batch / n
        return min(self.config.memory, max(0.0, 1 - 10 / visits))

    def predict(self, images: Tensor) -> Outputs:
        """Unknown iff u reaches the threshold of the predicted class."""
        z, alpha = self._embed(images)
        score = dirichlet_uncertainty(alpha) - self.delta()[alpha.argmax(1)]
        return Outputs(alpha / alpha.sum(1, keepdim=True), score, z)
