"""MLNet: Mutual Learning Network with neighbourhood invariance.

Lu et al., "MLNet: Mutual Learning Network with Neighborhood Invariance for Universal Domain
Adaptation", AAAI 2024. OVANet's two classifiers on the backbone's features, and three losses more.

Where paper and released code differ, or something had to be chosen, and what is the default here:

* Rows of the open classifier are not scaled, unlike OVANet's: as released.
* Warm-up: released, 200 of 10,000 steps (VisDA 500 of 25,000), after which the neighbourhoods are
  computed anew as often; default, `warmup` steps, or a fifth of a shorter run.
* Agreement of neighbourhoods: released, (N, N) numbers for all pairs of target images; default,
  only the neighbourhoods are kept, of `most` images at most, and the agreement is computed where a
  batch needs it.
* Memory at the start: released, of images with the training view; default, with the plain view.
* p = ½ is known in the released code and unknown here.
* Model: released, the best of all evaluations by target labels; default, the last step.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Beta

from unida.errors import require
from unida.losses import (
    consistency,
    mixture_rejection,
    neighbourhood_invariance,
    one_vs_all,
    open_entropy,
)
from unida.methods.base import About, FeatureExtractor, Method, require_range
from unida.models.backbones.base import Backbone
from unida.models.heads import pair_score
from unida.models.layers import MemoryBank
from unida.ops.neighbourhoods import jaccard, near_nearest, neighbourhoods
from unida.types import Batch, Outputs, Sizes
from unida.utils.devices import send


@dataclass(frozen=True)
class MLNetConfig:
    """Settings of MLNet.

    Attributes:
        entropy: weight of the open-set entropy on the target.
        mix: weight of the loss on mixtures of source and target features.
        cc: weight of the consistency of both classifiers.
        ni: weight of neighbourhood invariance.
        alpha: α of the Beta(α, α) that mixtures are drawn with.
        share: ε, the similarity of a neighbour as a share of the nearest's, at least.
        most: images of a neighbourhood whose agreement is computed, the nearest.
        scale: inverse temperature of similarities.
        warmup: steps before neighbourhood invariance, and between two updates of neighbourhoods.
    """

    entropy: float = 0.1
    mix: float = 0.1
    cc: float = 0.16
    ni: float = 0.5
    alpha: float = 2.0
    share: float = 0.875
    most: int = 100
    scale: float = 10.0
    warmup: int = 200

    def __post_init__(self) -> None:
        require_range(self, 0, 1000, "entropy", "mix", "cc", "ni")
        require_range(self, 0.01, 100, "alpha", "scale")
        require_range(self, 0, 1, "share")
        require_range(self, 1, 10_000, "most")
        require(self.warmup >= 1, "warmup", self.warmup, "1 or more")


class MLNet(Method):
    about = About(
        paper="MLNet: Mutual Learning Network with Neighborhood Invariance for Universal Domain "
        "Adaptation",
        venue="AAAI 2024",
        rule="the one-vs-all classifier of the likeliest class is negative",
        spec="released code",
    )
    Config = MLNetConfig
    config: MLNetConfig
    training_only = ("memory.rows", "neighbours")
    neighbours: Tensor

    def __init__(self, config: MLNetConfig, backbone: Backbone, sizes: Sizes) -> None:
        super().__init__(config, backbone, sizes)
        features, n = backbone.out_features, sizes.n_target
        self.closed = nn.Linear(features, sizes.n_classes, bias=False)
        self.pairs = nn.Linear(features, 2 * sizes.n_classes, bias=False)
        self.memory = MemoryBank(n, features)
        most = max(1, min(config.most, n - 1))
        self.register_buffer("neighbours", torch.full((n, most), -1))
        self.warmup = max(1, min(config.warmup, sizes.steps // 5))
        self.refresh_every = self.warmup

    def refresh(self, extract: FeatureExtractor, step: int) -> None:
        """Fill the memory before the first step; from the warm-up on, find the neighbourhoods."""
        if step == 0:
            self.memory.rows.copy_(F.normalize(extract("target")))
        elif step < self.sizes.steps:
            most = self.neighbours.shape[1]
            self.neighbours.copy_(neighbourhoods(self.memory.rows, self.config.share, most))

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        c, labels = self.config, batch.source_labels
        f_s = self.backbone(batch.source_views[0])
        f_t = self.backbone(batch.target_views[0])
        (closed_s, pairs_s), (closed_t, pairs_t) = self._logits(f_s), self._logits(f_t)
        return {
            "ce": F.cross_entropy(closed_s, labels),  # L_cls
            "open": one_vs_all(pairs_s, labels),  # L_ova, with the hardest negative
            "entropy": c.entropy * open_entropy(pairs_t),
            "mix": c.mix * self._mixtures(f_s, f_t, labels),
            "cc": c.cc * consistency(closed_t, pairs_t),
            "ni": c.ni * self._invariance(f_t, batch),
        }

    def _logits(self, f: Tensor) -> tuple[Tensor, Tensor]:
        pairs: Tensor = self.pairs(f)
        return self.closed(f), pairs.view(-1, 2, self.sizes.n_classes)

    def _mixtures(self, f_s: Tensor, f_t: Tensor, labels: Tensor) -> Tensor:
        alpha = torch.full((len(f_s), 1), self.config.alpha)
        # Drawn on the CPU: the same on every device, and not every device has Beta.
        share = send(Beta(alpha, alpha).sample(), f_s.device)
        _, pairs = self._logits(share * f_s + (1 - share) * f_t)
        return mixture_rejection(pairs, labels)

    def _invariance(self, f: Tensor, batch: Batch) -> Tensor:
        index, unit = batch.target_index, F.normalize(f)
        self._unit = unit.detach()
        if batch.step < self.warmup:
            return 0 * f.sum()
        rows = self.memory.rows.index_copy(0, index, self._unit)
        itself = F.one_hot(index, len(rows)).bool()
        similarity = (unit @ rows.T).masked_fill(itself, -1)
        near = near_nearest(similarity.detach(), self.config.share)
        weights = jaccard(self.neighbours, index, near)
        return neighbourhood_invariance(similarity, near, weights, self.config.scale)

    def after_step(self, batch: Batch) -> None:
        self.memory.update(batch.target_index, self._unit)

    def predict(self, images: Tensor) -> Outputs:
        """Unknown iff "is not k" outweighs "is k" for the closed head's class k."""
        f = self.backbone(images)
        closed, pairs = self._logits(f)
        return Outputs(closed.softmax(1), pair_score(closed, pairs), f)
