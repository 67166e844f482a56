"""DCC: Domain Consensus Clustering.

Li et al., "Domain Consensus Clustering for Universal Domain Adaptation", CVPR 2021.

Where paper and released code differ, or the code fails, and what is the default here:

* C* in CDD: released, the number of matched classes, whatever the batch holds; default, the blocks
  in the batch. With fewer matched classes than slots, released repeats some and pushes a class away
  from itself; default, each once (`blocks`).
* No matched pair at a refresh: released, an error; default, the last matched clusters are kept, and
  before there are any only cross-entropy and L_mem train.
* Lengths: released, in steps of 3,000 (clustering every 200, 400 of cross-entropy alone, w(t) over
  5,000); default, shares of the run: `rounds`, `warmup`, `ramp`. Defaults are Office-Home's; for
  Office-31 they were k_c 10, q 3, warmup 0, interval 2, k_max 3.
* Search of K: released, on the whole target; default, on a subset (`sample`), and k-means continues
  from the centres found with all images.
* Batch norm's affine parameters in a pretrained backbone are frozen, as released.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from unida.data.class_aware import ClassAware
from unida.errors import require
from unida.losses import contrastive_domain_discrepancy, memory_contrast
from unida.methods.base import (
    About,
    DomainName,
    FeatureExtractor,
    Method,
    require_range,
    resolve_bounded,
)
from unida.models.backbones.base import Backbone
from unida.models.heads import Neck
from unida.ops.consensus import match_clusters, search_centres, update_centres
from unida.ops.kmeans import kmeans
from unida.types import Batch, Outputs, Sizes
from unida.utils.schedule import exponential_rampup


@dataclass(frozen=True)
class DCCConfig:
    """Settings of DCC, in the paper's symbols.

    Attributes:
        lam: λ, weight of CDD.
        gamma: γ, steepness of the weight w(t) of L_mem.
        ramp: the step at which w(t) reaches 1, as a multiple of the run.
        tau: τ, temperature of L_mem.
        k_c: classes, or clusters, in a class-aware batch.
        q: images per class and domain; smaller matched clusters (q images or fewer) are dropped.
        blocks: `distinct` classes or, as released, `cycled` until there are k_c.
        rounds: clusterings in a run.
        warmup: share of the run with cross-entropy alone.
        interval: step of the search for K.
        k_max: largest K, as a multiple of the classes; by default 5, or fewer in a small target.
        sample: target images for the search of K, as a multiple of the largest K.
        width: neurons of the neck.
    """

    lam: float = 0.1
    gamma: float = 3.0
    ramp: float = 5 / 3
    tau: float = 0.1
    k_c: int = 6
    q: int = 6
    blocks: Literal["distinct", "cycled"] = "distinct"
    rounds: int = 15
    warmup: float = 2 / 15
    interval: int = 5
    k_max: int | None = None
    sample: int = 20
    width: int = 256

    def __post_init__(self) -> None:
        require_range(self, 0, 1000, "lam", "gamma")
        require_range(self, 0.005, 10, "tau")
        require(0 <= self.warmup < 1, "warmup", self.warmup, "from 0 up to, not including, 1")
        require_range(self, 2, 100, "q")
        require_range(self, 1, 1000, "ramp", "k_c", "rounds", "interval", "k_max", "sample")
        require_range(self, 1, 16384, "width")


class DCC(Method):
    about = About(
        paper="Domain Consensus Clustering for Universal Domain Adaptation",
        venue="CVPR 2021",
        rule="the nearest target cluster matches no class",
        spec="released code",
    )
    Config = DCCConfig
    config: DCCConfig
    target_views = ()
    training_only = ("cluster", "labels", "frozen")
    k: Tensor
    frozen: Tensor
    centres: Tensor
    match: Tensor
    cluster: Tensor
    labels: Tensor

    def __init__(self, config: DCCConfig, backbone: Backbone, sizes: Sizes) -> None:
        super().__init__(config, backbone, sizes)
        self.neck = Neck(backbone.out_features, config.width)
        self.classifier = nn.Linear(config.width, sizes.n_classes)
        per_class = math.ceil(sizes.n_target / sizes.n_classes)
        k_max = resolve_bounded("k_max", config.k_max, 5, per_class, "target images a class")
        max_clusters = max(2, min(k_max * sizes.n_classes, sizes.n_target))
        self.register_buffer("k", torch.tensor(0))  # clusters in use
        self.register_buffer("frozen", torch.tensor(False))  # whether K is final
        self.register_buffer("centres", torch.zeros(max_clusters, config.width))  # the memory
        self.register_buffer("match", torch.full((max_clusters,), -1))  # cluster → class, −1 none
        self.register_buffer("cluster", torch.zeros(sizes.n_target, dtype=torch.long))
        self.register_buffer("labels", torch.zeros(sizes.n_source, dtype=torch.long))
        self.refresh_every = math.ceil(sizes.steps / config.rounds)
        self._slots: tuple[list[int], list[int]] = ([], [])  # set by `extra` for `losses`
        self._sampler: ClassAware | None = None  # built from the buffers when needed
        for module in backbone.modules():
            if backbone.pretrained and isinstance(module, nn.BatchNorm2d):
                module.requires_grad_(False)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        c, extra = self.config, batch.extra
        n, logits = self._embed(batch.source_views[0])
        terms = dict.fromkeys(("class_ce", "cdd", "memory"), 0 * n.sum())
        terms["ce"] = F.cross_entropy(logits, batch.source_labels)
        y, cluster = (batch.source_labels.new_tensor(s).repeat_interleave(c.q) for s in self._slots)
        if "source" in extra:
            (n_s, logits_s), (n_t, _) = self._embed(extra["source"]), self._embed(extra["target"])
            terms["class_ce"] = F.cross_entropy(logits_s, y)
            blocks = len(y) // c.q
            c_star = len(self.sampler.cluster_of) if c.blocks == "cycled" else None
            cdd = contrastive_domain_discrepancy(n_s, n_t, blocks, c_star)
            terms["cdd"] = c.lam * cdd  # λ L_cdd
        if "clusters" in extra:
            n_t, _ = self._embed(extra["clusters"])
            memory = self.centres[: self.sampler.n_clusters]
            memory.copy_(update_centres(memory, n_t, cluster))  # before the loss, as released
            w = exponential_rampup(batch.step, c.ramp * self.sizes.steps, c.gamma)
            terms["memory"] = w * memory_contrast(n_t, cluster, memory, c.tau)  # w(t) L_mem
        return terms

    def _embed(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Neck features n and logits."""
        n = self.neck(self.backbone(images))
        return n, self.classifier(n)

    def predict(self, images: Tensor) -> Outputs:
        """Unknown iff the nearest centre matches no class."""
        n, logits = self._embed(images)
        cosine = F.normalize(n) @ self.centres.T
        used = torch.arange(len(self.match), device=n.device) < self.k
        matched = used & (self.match >= 0)
        # Without centres of a kind the maximum is −2, below any cosine.
        known = cosine.masked_fill(~matched, -2).amax(1)
        unknown = cosine.masked_fill(~used | matched, -2).amax(1)
        return Outputs(logits.softmax(1), unknown - known, n)

    def refresh(self, extract: FeatureExtractor, step: int) -> None:
        """Cluster the target and match clusters with classes."""
        c, max_clusters, labels = self.config, len(self.centres), extract.source_labels
        if step < c.warmup * self.sizes.steps:
            return
        source, target = (F.normalize(extract(d, None, self.neck)) for d in ("source", "target"))
        if self.frozen:
            start = self.centres[: int(self.k)]
        else:
            first = min(max_clusters, max(2, c.interval if self.k else self.sizes.n_classes))
            ks = range(first, max_clusters + 1, c.interval)
            subset = target[:: math.ceil(len(target) / (c.sample * max_clusters))]
            start = search_centres(source, labels, subset, self.sizes.n_classes, ks)
        centres, cluster = kmeans(target, start)
        pairs, _ = match_clusters(source, labels, target, cluster, centres, self.sizes.n_classes)
        pairs = pairs[cluster.bincount()[pairs[:, 1]] > c.q]
        if not len(pairs) and (self.match >= 0).any():
            return
        self.frozen |= self.k == len(centres)  # the same K in two searches
        self.k.fill_(len(centres))
        self.centres.zero_()[: len(centres)] = centres
        self.match.fill_(-1)[pairs[:, 1]] = pairs[:, 0]
        self.cluster.copy_(cluster)
        self.labels.copy_(labels)
        self._sampler = None

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self._sampler = None

    @property
    def sampler(self) -> ClassAware:
        """Class-aware sampler of the current clusters."""
        if self._sampler is None:
            self._sampler = ClassAware(self.labels, self.cluster, self.match[: int(self.k)])
        return self._sampler

    def extra(self, step: int, draws: Generator) -> dict[str, tuple[DomainName, Tensor]]:
        """Draw class-aware batches: matched classes in both domains, and clusters."""
        c = self.config
        self._slots, index = self.sampler.draw(c.k_c, c.q, c.blocks == "cycled", draws)
        return {k: ("source" if k == "source" else "target", v) for k, v in index.items()}
