"""GLC: global and local clustering, without the source at hand.

Qu et al., "Upcycling Models under Domain and Category Shift", CVPR 2023.

Source-free: the first part of the run sees labelled source images only, the second unlabelled
target images only, with the classifier frozen. The paper has two programs; here it is one run, so

* `source_share` says where the second stage begins (rounded down to whole epochs of the target);
* the loop's learning rate goes on decaying where the paper starts anew at a tenth of the first
  stage's; the target losses carry the quotient as a factor; see `target_lr`;
* weight decay is the run's (the paper's is 0.001), and momentum of the last source steps fades in
  the first target steps.

Where paper and released code differ, or something had to be chosen, and what is the default here:

* λ_psd: 0.3 for Office and VisDA, 1.5 for OfficeHome and DomainNet in the code; default 0.3.
* C_t: searched once, when the second stage begins, on `search` random images at most (the code
  takes all, or a random third of the large sets).
* k-means: our own instead of faiss's (in the search scikit-learn's), on 256 images a centre at
  most, as faiss does it, and on 20,000 at most; of more a random part is looked at.
* Few images or few classes: the code breaks with C · coefficient below 2 or above N; here both
  are kept in bounds.
* Model: that of the last step; the code reports the best epoch by target labels.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from unida.errors import require
from unida.losses import (
    global_labels,
    neighbours_say,
    search_coefficient,
    smoothed_cross_entropy,
    to_targets,
)
from unida.methods.base import About, FeatureExtractor, Method, require_range, resolve_bounded
from unida.models.backbones.base import Backbone
from unida.models.heads import Neck
from unida.models.layers import MemoryBank
from unida.ops.chunked import column_chunks
from unida.types import Batch, Outputs, Sizes


@dataclass(frozen=True)
class GLCConfig:
    """Settings of GLC, in the paper's symbols.

    Attributes:
        lambda_psd: weight of the loss on global pseudo labels.
        lambda_knn: weight of the loss on neighbours' predictions.
        rho: ρ, how much of a positive similarity counts however unsure the class is.
        k: neighbours; by default 4, if there are as many other target images.
        w0: normalised entropy above which an image is unknown.
        smoothing: ε, of the source labels.
        source_share: share of the run that trains on the source.
        target_lr: learning rate the second stage begins with, as a factor of the first's.
        search: images looked at to find the number of target classes, at the most.
        width: of the features.
    """

    lambda_psd: float = 0.3
    lambda_knn: float = 1.0
    rho: float = 0.75
    k: int | None = None
    w0: float = 0.55
    smoothing: float = 0.1
    source_share: float = 0.5
    target_lr: float = 0.1
    search: int = 1000
    width: int = 256

    def __post_init__(self) -> None:
        require_range(self, 0, 1000, "lambda_psd", "lambda_knn")
        require_range(self, 0, 1, "rho", "w0")
        require(
            0 <= self.smoothing < 1, "smoothing", self.smoothing, "from 0 up to, not including, 1"
        )
        require(0 < self.source_share < 1, "source_share", self.source_share, "between 0 and 1")
        require(0 < self.target_lr <= 100, "target_lr", self.target_lr, "more than 0, at most 100")
        require(self.k is None or self.k >= 1, "k", self.k, "none, or 1 or more")
        require_range(self, 10, 20_000, "search")
        require_range(self, 2, 16384, "width")


class GLC(Method):
    about = About(
        paper="Upcycling Models under Domain and Category Shift",
        venue="CVPR 2023",
        rule="entropy above 0.55 of its maximum",
        spec="released code",
    )
    Config = GLCConfig
    config: GLCConfig
    training_only = ("bank.rows", "bank_probs", "labels", "coefficient")
    bank_probs: Tensor
    labels: Tensor
    coefficient: Tensor

    def __init__(self, config: GLCConfig, backbone: Backbone, sizes: Sizes) -> None:
        super().__init__(config, backbone, sizes)
        n, n_classes = sizes.n_target, sizes.n_classes
        self.neck = Neck(backbone.out_features, config.width)
        self.classifier = weight_norm(nn.Linear(config.width, n_classes))
        nn.init.zeros_(self.classifier.bias)
        self.k = resolve_bounded("k", config.k, 4, n - 1, "other target images")
        self.bank = MemoryBank(n, config.width)
        self.register_buffer("bank_probs", torch.zeros(n, n_classes))
        self.register_buffer("labels", torch.full((n,), n_classes))  # C is 'none of them'
        self.register_buffer("coefficient", torch.tensor(1.0))  # C_t / C
        # The loop refreshes at multiples of an epoch, so the second stage begins at one; a target
        # whose epoch is longer than the first stage is looked at more often than once an epoch.
        first_stage = max(1, int(config.source_share * sizes.steps))
        self.refresh_every = max(1, min(n // sizes.batch, first_stage))
        self.begin = first_stage // self.refresh_every * self.refresh_every

    def refresh(self, look: FeatureExtractor, step: int) -> None:
        """Banks and pseudo labels, at every epoch of the second stage."""
        if not self.begin <= step < self.sizes.steps:
            return
        e = look("target", through=self.neck)
        for part in column_chunks(len(e), max(e.shape[1], self.sizes.n_classes)):
            self.bank_probs[part] = self.classifier(e[part]).softmax(1)
            self.bank.rows[part] = F.normalize(e[part])
        if step == self.begin:
            sample = self.bank.rows[torch.randperm(len(e))[: self.config.search]]
            self.coefficient.fill_(search_coefficient(sample, self.sizes.n_classes))
        self.labels.copy_(
            global_labels(self.bank.rows, self.bank_probs, self.coefficient.item(), self.config.rho)
        )

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        if batch.step < self.begin:
            return self._source(batch)
        return self._target(batch)

    def _source(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.classifier(self.neck(self.backbone(batch.source_views[0])))
        ce = F.cross_entropy(logits, batch.source_labels, label_smoothing=self.config.smoothing)
        return {"ce": ce, "psd": 0 * ce, "knn": 0 * ce}

    def _target(self, batch: Batch) -> dict[str, Tensor]:
        c, index = self.config, batch.target_index
        e = self.neck(self.backbone(batch.target_views[0]))
        # Frozen: without a gradient the optimiser leaves a parameter alone, decay and all.
        weight, bias = self.classifier.weight.detach(), self.classifier.bias.detach()
        p = F.linear(e, weight, bias).softmax(1)
        said = to_targets(self.labels[index], self.sizes.n_classes)  # ŷ
        heard = neighbours_say(F.normalize(e), self.bank.rows, self.bank_probs, self.k)  # q̄
        psd, knn = (smoothed_cross_entropy(p, target).mean() for target in (said, heard))
        self._news = e.detach(), p.detach()
        pace = self._pace(batch.step)
        return {
            "ce": 0 * psd,
            "psd": pace * c.lambda_psd * psd,  # global: one-vs-all clusters
            "knn": pace * c.lambda_knn * knn,  # local: what neighbours say
        }

    def _pace(self, step: int) -> float:
        """The paper's learning rate over the loop's: both decay alike, one of them begins anew."""
        loop = step / self.sizes.steps
        own = (step - self.begin) / (self.sizes.steps - self.begin)
        return float(self.config.target_lr * ((1 + 10 * loop) / (1 + 10 * own)) ** 0.75)

    def after_step(self, batch: Batch) -> None:
        """The banks remember what the step was made with, after neighbours were looked up."""
        if batch.step >= self.begin:
            e, p = self._news
            self.bank.update(batch.target_index, e)
            self.bank_probs[batch.target_index] = p

    def predict(self, images: Tensor) -> Outputs:
        """Unknown iff H(p) / ln C > w0."""
        e = self.neck(self.backbone(images))
        p = self.classifier(e).softmax(1)
        entropy = smoothed_cross_entropy(p, p) / math.log(self.sizes.n_classes)
        return Outputs(p, entropy - self.config.w0, e)
