"""LEAD: Learning Decomposition, source-free.

Qu et al., "LEAD: Learning Decomposition for Source-free Universal Domain Adaptation", CVPR 2024. By
the authors of GLC: the same network, source stage, k-NN loss and rule (`unida.methods.glc`, whose
notes on both stages hold here too); the pseudo labels of the target stage are others.

Where paper and released code differ, or something had to be chosen, and what is the default here:

* λ_psd: released, 0.3 for Office, 1 for VisDA, 2 for OfficeHome and DomainNet; default 0.3.
* Certainty: the code means to give images far from their boundary weight 1, but assigns to a copy;
  default, weight 1; see `released_weights`.
* Spaces: released, by a singular value decomposition of the classifier; default, by a QR
  decomposition of the same rows. Norms depend on the span alone.
* C_t: released, every ten epochs on all images, or a third of VisDA's; default, as often, on at
  most `search` random ones.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from unida.errors import require
from unida.losses import soft_cross_entropy, space_separation
from unida.methods.base import About, FeatureExtractor
from unida.methods.glc import GLC, GLCConfig
from unida.models.backbones.base import Backbone
from unida.ops.chunked import column_chunks
from unida.ops.decomposition import RATIOS, decomposition_labels, space_norms
from unida.ops.knn import knn_probs
from unida.ops.pseudo_labels import estimate_class_ratio, soft_targets
from unida.types import Batch, Sizes

SEARCH_EVERY = 10
"""Epochs between two searches of C_t."""


@dataclass(frozen=True)
class LEADConfig(GLCConfig):
    """Settings of LEAD: those of GLC but `rho`, which it has no use for.

    Attributes:
        lambda_reg: weight of the loss on the two spaces.
        released_weights: the released code's certainty.
    """

    lambda_reg: float = 1.0
    released_weights: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = 0 <= self.lambda_reg <= 1000
        require(ok, "lambda_reg", self.lambda_reg, "from 0 to 1000")


class LEAD(GLC):
    about = About(
        paper="LEAD: Learning Decomposition for Source-free Universal Domain Adaptation",
        venue="CVPR 2024",
        rule="entropy above 0.55 of its maximum",
        spec="released code",
    )
    Config = LEADConfig
    config: LEADConfig
    training_only = (*GLC.training_only, "certainty")
    certainty: Tensor

    def __init__(self, config: LEADConfig, backbone: Backbone, sizes: Sizes) -> None:
        more = f"more than {sizes.n_classes}, the number of classes"
        require(config.width > sizes.n_classes, "width", config.width, more)
        super().__init__(config, backbone, sizes)
        self.register_buffer("certainty", torch.zeros(sizes.n_target))

    def refresh(self, extract: FeatureExtractor, step: int) -> None:
        """Fill the banks and compute pseudo labels, at every epoch of the second stage."""
        if not self.begin <= step < self.sizes.steps:
            return
        e = extract("target", through=self.neck)
        for part in column_chunks(len(e), max(e.shape[1], self.sizes.n_classes)):
            self.bank_probs[part] = self.classifier(e[part]).softmax(1)
            self.bank.rows[part] = F.normalize(e[part])
        if (step - self.begin) // self.refresh_every % SEARCH_EVERY == 0:
            sample = self.bank.rows[torch.randperm(len(e))[: self.config.search]]
            self.coefficient.fill_(estimate_class_ratio(sample, self.sizes.n_classes, RATIOS))
        labels, certainty = decomposition_labels(
            self.bank.rows,
            self.bank_probs,
            self.classifier.weight,
            self.coefficient.item(),
            certain=not self.config.released_weights,
        )
        self.labels.copy_(labels)
        self.certainty.copy_(certainty)

    def _source_terms(self, batch: Batch) -> dict[str, Tensor]:
        terms = super()._source_terms(batch)
        return terms | {"reg": 0 * terms["ce"]}

    def _target_terms(self, batch: Batch) -> dict[str, Tensor]:
        c, index = self.config, batch.target_index
        e = self.neck(self.backbone(batch.target_views[0]))
        weight, bias = self.classifier.weight.detach(), self.classifier.bias.detach()  # frozen
        p, unit = F.linear(e, weight, bias).softmax(1), F.normalize(e)
        labels, certainty = self.labels[index], self.certainty[index]
        y_hat = soft_targets(labels, self.sizes.n_classes) * certainty[:, None]  # w ŷ
        q_bar = knn_probs(unit.detach(), self.bank.rows, self.bank_probs, self.k)  # q̄
        known, unknown = space_norms(unit, weight)
        reg = space_separation(known, unknown, labels == self.sizes.n_classes, certainty)
        psd, knn = soft_cross_entropy(p, y_hat), soft_cross_entropy(p, q_bar)
        self._pending = e.detach(), p.detach()
        lr = self._lr_factor(batch.step)
        return {
            "ce": 0 * psd,
            "psd": lr * c.lambda_psd * psd,  # λ L_ce, on pseudo labels
            "reg": lr * c.lambda_reg * reg,  # L_reg, known or unknown space
            "knn": lr * c.lambda_knn * knn,  # L_con, neighbours
        }
