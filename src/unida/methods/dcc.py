"""DCC: Domain Consensus Clustering.

Li et al., "Domain Consensus Clustering for Universal Domain Adaptation", CVPR 2021.

Where paper and released code differ, or the code goes wrong, and what is the default here:

* C* in CDD: released, the number of matched classes, whatever the batch holds; default, the blocks
  in the batch. With fewer matched classes than slots the release repeats some and drives a class
  away from itself; default, each once (`blocks`).
* No pair is left at some refresh: the release stops with an error; here the last clusters that had
  one stay in force, and before any there are only cross-entropy and L_mem.
* The release counts in steps of 3,000 (clusters every 200, 400 of cross-entropy alone, w(t) over
  5,000); here these are shares of the run: `rounds`, `warmup`, `ramp`. Defaults are Office-Home's;
  for Office-31 they were k_c 10, q 3, warmup 0, interval 2, k_max 3.
* K is searched on a part of the target (`sample`; the release takes all); from the centres found,
  k-means goes on with all images (a part moves the centres where there are very many).
* Affine parameters of batch norm in a pretrained backbone are frozen, as released.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from unida.data.class_aware import ClassAware
from unida.errors import require
from unida.losses import (
    class_discrepancy,
    kmeans,
    matching_pairs,
    memory_contrast,
    memory_weight,
    moved_centres,
    search_centres,
)
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
from unida.types import Batch, Outputs, Sizes


@dataclass(frozen=True)
class DCCConfig:
    """Settings of DCC, in the paper's symbols.

    Attributes:
        lam: λ, weight of CDD.
        gamma: γ, steepness of the weight w(t) of L_mem.
        ramp: the step at which w(t) would be 1, as a multiple of the run.
        tau: τ, temperature of L_mem.
        k_c: slots of a class-aware batch: classes, or clusters, in it.
        q: images a slot and domain; a matched cluster with no more members is not used.
        blocks: `distinct` classes or, as released, `cycled` through until the slots are full.
        rounds: how often a run clusters the target.
        warmup: share of the run with cross-entropy alone.
        interval: step of the search for K.
        k_max: largest K, as a multiple of the classes; by default 5, if there are the images.
        sample: target images the search of K looks at, as a multiple of the largest K.
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
        rule="the nearest cluster of the target matches no class",
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
        each = math.ceil(sizes.n_target / sizes.n_classes)
        k_max = resolve_bounded("k_max", config.k_max, 5, each, "target images a class")
        most = max(2, min(k_max * sizes.n_classes, sizes.n_target))
        self.register_buffer("k", torch.tensor(0))  # clusters in use
        self.register_buffer("frozen", torch.tensor(False))  # whether K is found for good
        self.register_buffer("centres", torch.zeros(most, config.width))  # the memory
        self.register_buffer("match", torch.full((most,), -1))  # a cluster's class, −1 for none
        self.register_buffer("cluster", torch.zeros(sizes.n_target, dtype=torch.long))
        self.register_buffer("labels", torch.zeros(sizes.n_source, dtype=torch.long))
        self.refresh_every = math.ceil(sizes.steps / config.rounds)
        self._slots: tuple[list[int], list[int]] = ([], [])  # what `losses` takes from `extra`
        self._images: ClassAware | None = None  # what the buffers say, on the host
        for module in backbone.modules():
            if backbone.pretrained and isinstance(module, nn.BatchNorm2d):
                module.requires_grad_(False)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        c, extra = self.config, batch.extra
        n, logits = self._see(batch.source_views[0])
        terms = dict.fromkeys(("class_ce", "cdd", "memory"), 0 * n.sum())
        terms["ce"] = F.cross_entropy(logits, batch.source_labels)
        y, ids = (batch.source_labels.new_tensor(s).repeat_interleave(c.q) for s in self._slots)
        if "source" in extra:
            (n_s, logits_s), (n_t, _) = self._see(extra["source"]), self._see(extra["target"])
            terms["class_ce"] = F.cross_entropy(logits_s, y)
            c_star = len(self._sorted().cluster_of) if c.blocks == "cycled" else None
            terms["cdd"] = c.lam * class_discrepancy(n_s, n_t, len(y) // c.q, c_star)
        if "clusters" in extra:
            n_t, _ = self._see(extra["clusters"])
            memory = self.centres[: self._sorted().n_clusters]
            memory.copy_(moved_centres(memory, n_t, ids))  # before the loss, as released
            w = memory_weight(batch.step, c.ramp * self.sizes.steps, c.gamma)
            terms["memory"] = w * memory_contrast(n_t, ids, memory, c.tau)
        return terms

    def _see(self, images: Tensor) -> tuple[Tensor, Tensor]:
        n = self.neck(self.backbone(images))
        return n, self.classifier(n)

    def predict(self, images: Tensor) -> Outputs:
        """Unknown iff the nearest centre belongs to no class."""
        n, logits = self._see(images)
        cosine = F.normalize(n) @ self.centres.T
        used = torch.arange(len(self.match), device=n.device) < self.k
        matched = used & (self.match >= 0)
        # Where there is no centre of a kind, it is at −2, further than any cosine.
        known = cosine.masked_fill(~matched, -2).amax(1)
        unknown = cosine.masked_fill(~used | matched, -2).amax(1)
        return Outputs(logits.softmax(1), unknown - known, n)

    def refresh(self, look: FeatureExtractor, step: int) -> None:
        """Clusters the target and finds the clusters that match a class."""
        c, most, labels = self.config, len(self.centres), look.source_labels
        if step < c.warmup * self.sizes.steps:
            return
        source, target = (F.normalize(look(d, None, self.neck)) for d in ("source", "target"))
        if self.frozen:
            start = self.centres[: int(self.k)]
        else:
            first = min(most, max(2, c.interval if self.k else self.sizes.n_classes))
            ks = range(first, most + 1, c.interval)
            some = target[:: math.ceil(len(target) / (c.sample * most))]
            start = search_centres(source, labels, some, self.sizes.n_classes, ks)
        centres, cluster = kmeans(target, start)
        pairs, _ = matching_pairs(source, labels, target, cluster, centres, self.sizes.n_classes)
        pairs = pairs[cluster.bincount()[pairs[:, 1]] > c.q]
        if not len(pairs) and (self.match >= 0).any():
            return
        self.frozen |= self.k == len(centres)  # the same K twice
        self.k.fill_(len(centres))
        self.centres.zero_()[: len(centres)] = centres
        self.match.fill_(-1)[pairs[:, 1]] = pairs[:, 0]
        self.cluster.copy_(cluster)
        self.labels.copy_(labels)
        self._images = None

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self._images = None

    def _sorted(self) -> ClassAware:
        if self._images is None:
            self._images = ClassAware(self.labels, self.cluster, self.match[: int(self.k)])
        return self._images

    def extra(self, step: int, draws: Generator) -> dict[str, tuple[DomainName, Tensor]]:
        """Class-aware batches: of classes, in both domains, and of clusters."""
        c = self.config
        self._slots, wanted = self._sorted().draw(c.k_c, c.q, c.blocks == "cycled", draws)
        return {k: ("source" if k == "source" else "target", v) for k, v in wanted.items()}
