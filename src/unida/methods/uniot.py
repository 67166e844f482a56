"""UniOT: unified optimal transport.

Chang et al., "Unified Optimal Transport Framework for Universal Domain Adaptation", NeurIPS 2022.

Where paper and released code differ, or the code depends on versions, and what is the default here:

* Entropy of the unbalanced problem: newer versions of POT changed its reference silently; default,
  a matrix of ones, as the authors ran it (see `unida.ops.sinkhorn`).
* ImageNet statistics: released, applied in the transform and again in the network; default, once;
  see `normalise_twice` (which the first fill of the queue does not follow).
* Common class detection: released, after 100 of 10,000 steps; default, after `warm_up` steps, or a
  fifth of a shorter run.
* Queue: no longer than the target. The defaults of `K`, `mu` and `queue` are the code's for Office;
  the protocols have those of other sets. μ = 1 never changes β.
* Filling: rows are drawn at random, at test from a fixed seed, so that predictions repeat.
* Predictions have no filter against source-private classes; training has one, as released.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unida.errors import require
from unida.methods.base import About, FeatureExtractor, Method, require_range, resolve_bounded
from unida.models.backbones.base import Backbone
from unida.models.heads import UnitLinear
from unida.ops.sinkhorn import adaptive_filling, normalised_plan, pseudo_labels, sinkhorn
from unida.types import Batch, Outputs, Sizes


@dataclass(frozen=True)
class UniOTConfig:
    """Settings of UniOT, in the paper's symbols.

    Attributes:
        lam: λ, weight of the two target losses.
        gamma: γ, cosine above which the adaptive filling takes an image for known.
        mu: μ, momentum of the class masses β.
        tau: τ, temperature of both prototype classifiers.
        K: target prototypes; by default 50, at most one per target image.
        queue: most target features in the queue, which has whole batches; by default 2000.
        width: dimensions of the features v.
        warm_up: steps before common class detection.
        normalise_twice: apply the image statistics twice, as the released code does.
    """

    lam: float = 0.1
    gamma: float = 0.7
    mu: float = 0.7
    tau: float = 0.1
    K: int | None = None
    queue: int | None = None
    width: int = 256
    warm_up: int = 100
    normalise_twice: bool = False

    def __post_init__(self) -> None:
        require_range(self, 0, 1000, "lam")
        require(self.warm_up >= 0, "warm_up", self.warm_up, "0 or more")
        require_range(self, -1, 1, "gamma")
        require_range(self, 0, 1, "mu")
        require_range(self, 0.005, 10, "tau")
        require(self.K is None or self.K >= 2, "K", self.K, "none, or 2 or more")
        require(self.queue is None or self.queue >= 1, "queue", self.queue, "none, or 1 or more")
        require_range(self, 1, 16384, "width")


class UniOT(Method):
    about = About(
        paper="Unified Optimal Transport Framework for Universal Domain Adaptation",
        venue="NeurIPS 2022",
        rule="no class has an average share of the transport plan",
        spec="released code",
        transductive=True,
    )
    Config = UniOTConfig
    config: UniOTConfig
    training_only = ("queue", "queue_index")
    beta: Tensor
    queue: Tensor
    queue_index: Tensor

    def __init__(self, config: UniOTConfig, backbone: Backbone, sizes: Sizes) -> None:
        super().__init__(config, backbone, sizes)
        features, width = backbone.out_features, config.width
        self.projection = nn.Sequential(
            nn.Linear(features, features), nn.ReLU(), nn.Linear(features, width)
        )
        n_target = sizes.n_target
        self.K = resolve_bounded("K", config.K, 50, n_target, "target images")
        self.source_prototypes = UnitLinear(width, sizes.n_classes, config.tau)  # W_s
        self.target_prototypes = UnitLinear(width, self.K, config.tau)  # W_t
        self.source_prototypes.scale_rows()
        self.target_prototypes.scale_rows()
        # A ring of whole batches: step t overwrites the oldest slot.
        self.slots = max(1, min(config.queue or 2000, n_target) // sizes.batch)
        rows = self.slots * sizes.batch
        self.register_buffer("queue", torch.zeros(rows, width))
        self.register_buffer("queue_index", torch.full((rows,), -1))
        self.register_buffer("beta", torch.full((sizes.n_classes,), 1 / sizes.n_classes))
        self.warm_up = min(config.warm_up, sizes.steps // 5)
        self.refresh_every = sizes.steps + 1  # before step 0 alone

    def refresh(self, extract: FeatureExtractor, step: int) -> None:
        """Fill the queue before the first step."""
        if step > 0:
            return
        chosen = torch.randperm(self.sizes.n_target)[: len(self.queue)]
        self.queue.copy_(F.normalize(self.projection(extract("target", chosen))))
        self.queue_index.copy_(chosen)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        c = self.config
        logits = self.source_prototypes(self._embed(batch.source_views[0]))
        v = self._embed(batch.target_views[0])
        self._pending = v.detach(), self.beta
        return {
            "ce": F.cross_entropy(logits, batch.source_labels),  # L_cls
            "pcd": c.lam * self._pcd(v, batch),  # λ L_PCD
            "ccd": c.lam * self._ccd(v) if batch.step > self.warm_up else 0 * v.sum(),  # λ L_CCD
        }

    def _embed(self, images: Tensor) -> Tensor:
        """Unit features v̂."""
        if self.config.normalise_twice and images.ndim == 4:
            images = (images - self.backbone.mean) / self.backbone.std
        return F.normalize(self.projection(self.backbone(images)))

    def _pcd(self, v: Tensor, batch: Batch) -> Tensor:
        """Private class discovery: images and their neighbours swap prototype assignments."""
        u = self._neighbours(v, batch.target_index)
        fill = self._from_queue(self.K)
        logits = self.target_prototypes(torch.cat([v, u, fill]))
        targets = sinkhorn(self.config.tau * logits)  # of the cosines
        (logits_v, logits_u), (q_v, q_u) = (x[: 2 * len(v)].chunk(2) for x in (logits, targets))
        local = (F.cross_entropy(logits_v, q_u) + F.cross_entropy(logits_u, q_v)) / 2  # L_local
        return (F.cross_entropy(logits_v, q_v) + local) / 2  # L_PCD = (L_global + L_local) / 2

    def _neighbours(self, v: Tensor, index: Tensor) -> Tensor:
        """Nearest neighbours in queue and batch; queue entries of batch images are excluded."""
        candidates = torch.cat([self.queue, v])
        in_batch = torch.isin(self.queue_index, index).expand(len(v), -1)
        self_pair = torch.eye(len(v), dtype=torch.bool, device=v.device)
        cosines = (v @ candidates.T).masked_fill(torch.cat([in_batch, self_pair], 1), -torch.inf)
        return candidates[cosines.argmax(1)]

    def _from_queue(self, n: int) -> Tensor:
        return self.queue[torch.randint(len(self.queue), (n,))]

    def _ccd(self, v: Tensor) -> Tensor:
        """Common class detection: cross-entropy with the transport plan's confident labels."""
        features = torch.cat([v.detach(), self._from_queue(len(self.queue))])
        plan = self._plan(features, torch.rand(len(features)), stop=1e-4)
        self._pending = v.detach(), plan.sum(0)
        label, _, kept = (rows[: len(v)] for rows in pseudo_labels(plan))
        if not kept.any():
            return 0 * v.sum()
        return F.cross_entropy(self.source_prototypes(v[kept]), label[kept])

    def _plan(self, features: Tensor, draws: Tensor, stop: float) -> Tensor:
        """Q̄ over the given rows, followed by those of the adaptive filling."""
        w = self.source_prototypes.weight.detach()
        fill = adaptive_filling(features, w, self.beta, self.config.gamma, draws, stop)
        return normalised_plan(torch.cat([features @ w.T, fill]), self.beta, stop)

    def after_step(self, batch: Batch) -> None:
        v, masses = self._pending
        self.beta.lerp_(masses, 1 - self.config.mu)  # β ← μ β + (1 − μ) · column masses
        first = batch.step % self.slots * self.sizes.batch
        self.queue[first : first + len(v)] = v
        self.queue_index[first : first + len(v)] = batch.target_index
        self.source_prototypes.scale_rows()
        self.target_prototypes.scale_rows()

    def predict(self, images: Tensor) -> Outputs:
        """Score provisionally by γ − largest cosine; `postprocess` decides on the whole set."""
        v = self._embed(images)
        logits = self.source_prototypes(v)
        return Outputs(logits.softmax(1), self.config.gamma - self.config.tau * logits.amax(1), v)

    def postprocess(self, outputs: Outputs) -> Outputs:
        """Unknown iff max_j Q̄_ij ≤ 1/n', n' counting the rows of the filling."""
        n = len(outputs.features)
        draws = torch.rand(n, generator=torch.Generator().manual_seed(0))
        plan = self._plan(outputs.features, draws, stop=1e-6)
        share = len(plan) * plan[:n]
        return Outputs(share / share.sum(1, keepdim=True), -share.amax(1).log(), outputs.features)
