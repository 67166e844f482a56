"""TNT: evidential neighbourhood contrastive learning. A reconstruction.

Chen et al., "Evidential Neighborhood Contrastive Learning for Universal Domain Adaptation",
AAAI 2022.

No code was released and only the abstract was at hand: an evidential head, a multi-sample contrast
with mutual nearest neighbours within and across domains, an objective of uncertainty against
confidence on the target, a threshold for every class. All numbers and exact forms are this file's,
and its results are no reproduction of the paper's. Chosen here, with the switches:

* Evidence is softplus (`evidence`), the loss of the label is the digamma form (`form`), the weight
  κ of the penalty on misleading evidence rises to 1 over the first tenth of the run (`anneal`).
* A positive is one of the k nearest in a memory that has the anchor among its own k nearest, for
  each pair of domains apart; several positives stand in one logarithm (`positives`). Anchors are
  the images of the batch, memories give no gradient, images not yet seen are nobody's neighbour.
* A memory's row keeps momentum `memory`, but never lags by more than a tenth of the times the run
  shows an image: over 600 steps on digits 0.9 leaves rows of an untrained network to the end, and
  what was to be a neighbour is an accident (measured: H 42 instead of 68).
* δ_k is the running mean of u over the source images of class k that are classified correctly,
  plus one running standard deviation; weights of the running mean are normalised, so its early
  values count no more than later ones. A class never yet right has δ = 1: only u = 1 is rejected.
* The memories are `width` numbers in float32 an image. A step compares the k neighbours of every
  anchor with all rows, a part of them at a time: time grows with images, memory beside them not.
* The verdict is unknown from u = δ on (the words are u > δ): a score of zero rejects here.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unida.errors import require
from unida.losses import (
    away_from_threshold,
    dirichlet,
    evidential,
    memory_pairs,
    misleading_evidence,
    multi_sample_contrast,
    uncertainty,
)
from unida.methods.base import About, Method, require_range, resolve_bounded
from unida.models.backbones.base import Backbone
from unida.models.heads import Neck
from unida.models.layers import MemoryBank
from unida.types import Batch, Outputs, Sizes


@dataclass(frozen=True)
class TNTConfig:
    """Settings of TNT; the values are a reconstruction's.

    Attributes:
        lam1: λ₁, weight of the contrast with mutual nearest neighbours.
        lam2: λ₂, weight of uncertainty against confidence.
        evidence: from a logit to evidence.
        form: of the evidential loss on the source.
        anneal: share of the run over which κ rises from 0 to 1.
        positives: how several positives of one anchor count.
        k: neighbours that count, in each direction and pair of domains; by default 5, if there are.
        tau: τ, temperature of the contrast.
        memory: momentum of the memories; less where the run shows an image seldom.
        ema: momentum of the running mean and deviation behind δ.
        margin: m as a share of the range of δ; nearer to its threshold a target image is left.
        width: features of z.
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
        for name in ("u_mean", "u_variance", "u_count"):  # of source images judged rightly
            self.register_buffer(name, torch.zeros(sizes.n_classes))
        self._fresh: tuple[Tensor, ...] = ()  # what `after_step` takes from `losses`

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        c, labels = self.config, batch.source_labels
        z_s, alpha_s = self._see(batch.source_views[0])  # one forward a domain
        z_t, alpha_t = self._see(batch.target_views[0])
        self._fresh = (z_s.detach(), z_t.detach(), alpha_s.detach())

        kappa = min(1.0, batch.step / (c.anneal * self.sizes.steps))
        unit, index = (F.normalize(z_s), F.normalize(z_t)), (batch.source_index, batch.target_index)
        memories = (self.source.rows, self.target.rows)
        candidates = memory_pairs(unit, index, memories, self.k)  # P and A
        mnn = multi_sample_contrast(torch.cat(unit), candidates, c.tau, c.positives)
        y_hat, delta = alpha_t.argmax(1), self.delta()
        m, has_delta = c.margin * (delta.max() - delta.min()), (self.u_count > 0)[y_hat]
        uc = away_from_threshold(uncertainty(alpha_t), delta[y_hat], m, has_delta)
        return {
            "edl": evidential(alpha_s, labels, c.form),
            "kl": kappa * misleading_evidence(alpha_s, labels),
            "mnn": c.lam1 * mnn,
            "uc": c.lam2 * uc,
        }

    def _see(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """z and the Dirichlet's α."""
        z = self.neck(self.backbone(images))
        return z, dirichlet(self.head(z), self.config.evidence)

    def delta(self) -> Tensor:
        """δ, one threshold a class."""
        deviation = self.u_variance.clamp_min(0).sqrt()
        return torch.where(self.u_count > 0, self.u_mean + deviation, 1.0)

    def after_step(self, batch: Batch) -> None:
        z_s, z_t, alpha_s = self._fresh
        self.source.update(batch.source_index, z_s, self._momentum(self.sizes.n_source))
        self.target.update(batch.target_index, z_t, self._momentum(self.sizes.n_target))

        u, labels = uncertainty(alpha_s)[:, None], batch.source_labels
        right = (alpha_s.argmax(1) == labels)[:, None]
        member = F.one_hot(labels, self.sizes.n_classes) * right  # (B, K)
        n = member.sum(0)
        self.u_count += n > 0
        rate = (1 - self.config.ema) / (1 - self.config.ema ** self.u_count.clamp_min(1))
        rate = torch.where(n > 0, rate, 0) / n.clamp_min(1)
        self.u_mean += rate * (member * (u - self.u_mean)).sum(0)
        self.u_variance += rate * (member * ((u - self.u_mean).square() - self.u_variance)).sum(0)

    def _momentum(self, n: int) -> float:
        """So that a row of n forgets within a tenth of the visits it gets in the whole run."""
        visits = self.sizes.steps * self.sizes.batch / n
        return min(self.config.memory, max(0.0, 1 - 10 / visits))

    def predict(self, images: Tensor) -> Outputs:
        """Unknown iff u reaches the threshold of the predicted class."""
        z, alpha = self._see(images)
        score = uncertainty(alpha) - self.delta()[alpha.argmax(1)]
        return Outputs(alpha / alpha.sum(1, keepdim=True), score, z)
