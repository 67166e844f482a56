"""CMU: Calibrated Multiple Uncertainties.

Fu et al., "Learning to Detect Open Classes for Universal Domain Adaptation", ECCV 2020.

The authors released three versions that disagree; this follows the one in their folder `new`, the
closest to the paper. Where it and this file differ, and what is the default here:

* Test: released, confidence, inconsistency and entropy are scaled by their range over the test
  set; default, by their range over the run's target, which is stored, so that predictions do not
  depend on other images. For the target itself both agree. A score of exactly w0 is unknown here.
* Views of the five heads: released, affine and perspective changes, corner crops and grey images;
  default, centre, random and resized crops and colour jitter. All heads train in the same steps.
* Schedule: released, 1,000 steps of pre-training, then 20 cycles of 500 per head and 1,000
  adversarial; default, the same shares of the run, and the heads, which decide at test, train last.
* Pre-training: released, no loss on the main head, views 4 and 5 to head 1 and the full learning
  rate for the backbone; default, none of these; see `released_pretraining` for the first two.
* Score: default, confidence is the largest probability; see `confidence` for TLlib's two terms.
* No image above w0, or equal class weights: released, 0/0; default, ones.
"""

from dataclasses import dataclass
from math import ceil, sqrt
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unida.data.augmentations import View
from unida.errors import require
from unida.losses import domain_adversarial
from unida.methods.base import About, FeatureExtractor, Method, require_range
from unida.models.backbones.base import Backbone
from unida.models.layers import Discriminator, reversal_strength, reverse_gradient
from unida.ops.transferability import certainty, class_weights, transferability
from unida.types import Batch, Outputs, Sizes

HEAD_VIEWS = (
    View("centre", flip=True, jitter=(0, 0, 1, 0), jitter_chance=0.5),
    View("random", flip=True, jitter=(0.2, 0.2, 0.2, 0.2), jitter_chance=1),
    View("resized", 0.8, flip=True, jitter=(0.2, 0.2, 0.2, 0.2), jitter_chance=1),
    View("resized", 0.6, flip=True),
    View("random", flip=True, jitter=(0, 0, 1, 0), jitter_chance=0.5),
)


@dataclass(frozen=True)
class CMUConfig:
    """Settings of CMU, in the paper's symbols.

    Attributes:
        w0: least score of a known image.
        lam: λ, weight of the adversarial loss.
        confidence: form of the confidence; `margin` also drops the inconsistency.
        epochs: cycles after pre-training, each two thirds adversarial and one third heads.
        ramp: time constant of the gradient reversal, as a share of the adversarial steps.
        crop: least share of an image in the crops of the main head and the discriminator.
        width: features after the bottleneck.
        hidden: neurons of the discriminator's hidden layers.
        released_pretraining: the released code's routing of views and no loss of the main head.
    """

    w0: float = 0.5
    lam: float = 1.0
    confidence: Literal["max", "margin"] = "max"
    epochs: int = 20
    ramp: float = 0.05
    crop: float = 0.08
    width: int = 256
    hidden: int = 1024
    released_pretraining: bool = False

    def __post_init__(self) -> None:
        require_range(self, 0, 1, "w0")
        require_range(self, 0, 1000, "lam")
        require(0 < self.ramp <= 1000, "ramp", self.ramp, "more than 0, at most 1000")
        require(0 < self.crop <= 1, "crop", self.crop, "more than 0, at most 1")
        require(self.epochs >= 1, "epochs", self.epochs, "1 or more")
        require_range(self, 1, 16384, "width", "hidden")


class CMU(Method):
    about = About(
        paper="Learning to Detect Open Classes for Universal Domain Adaptation",
        venue="ECCV 2020",
        rule="confidence, agreement and low entropy of five heads at most w0",
        spec="released code",
    )
    Config = CMUConfig
    config: CMUConfig
    training_only = ("class_weight",)
    least: Tensor
    largest: Tensor
    class_weight: Tensor

    def __init__(self, config: CMUConfig, backbone: Backbone, sizes: Sizes) -> None:
        super().__init__(config, backbone, sizes)
        width, n_classes = config.width, sizes.n_classes
        self.bottleneck = nn.Sequential(
            nn.Linear(backbone.out_features, width), nn.BatchNorm1d(width), nn.ReLU()
        )
        self.classifier = nn.Linear(width, n_classes)  # G
        heads = [nn.Linear(width, n_classes) for _ in HEAD_VIEWS]  # G_1: torch's default
        nn.init.xavier_uniform_(heads[1].weight, gain=sqrt(2))
        nn.init.xavier_normal_(heads[2].weight)
        nn.init.kaiming_uniform_(heads[3].weight)
        nn.init.kaiming_normal_(heads[4].weight)
        self.heads = nn.ModuleList(heads)  # G_1 … G_5
        self.discriminator = Discriminator(width, config.hidden, batch_norm=True)  # D
        columns = 3 if config.confidence == "max" else 2
        self.register_buffer("least", torch.zeros(columns))
        self.register_buffer("largest", torch.ones(columns))
        self.register_buffer("class_weight", torch.ones(n_classes))  # V

        base = View("resized", config.crop, flip=True)
        self.source_views, self.target_views = (base, *HEAD_VIEWS), (base,)
        self.refresh_every = max(3, ceil(sizes.steps / (config.epochs + 1)))
        self.head_steps = self.refresh_every // 3

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the terms of the step's phase; those of other phases are zero."""
        cycle, step_in_cycle = divmod(batch.step, self.refresh_every)
        first_steps = self.refresh_every - self.head_steps  # of a cycle, before the heads alone
        if step_in_cycle >= first_steps or batch.step >= self.sizes.steps - self.head_steps:
            terms = self._fit_heads(batch, frozen=True)
        elif cycle == 0:
            terms = self._fit_heads(batch, frozen=False)
        else:
            adversarial_step = (cycle - 1) * first_steps + step_in_cycle
            terms = self._adapt(batch, adversarial_step / (self.config.epochs * first_steps))
        zero = 0 * next(iter(terms.values()))
        return {"ce": zero, "ensemble": zero, "adversarial": zero} | terms

    def _features(self, images: Tensor) -> Tensor:
        g: Tensor = self.bottleneck(self.backbone(images))
        return g

    def _certainty(self, g: Tensor) -> Tensor:
        ensemble = torch.stack([head(g).softmax(1) for head in self.heads])
        return certainty(ensemble, self.config.confidence)

    def _fit_heads(self, batch: Batch, frozen: bool) -> dict[str, Tensor]:
        """Σ_i CE(G_i on view i); trains the features too, unless frozen in evaluation mode."""
        labels = batch.source_labels
        released = self.config.released_pretraining and not frozen
        self.backbone.train(not frozen)
        self.bottleneck.train(not frozen)
        with torch.set_grad_enabled(not frozen):
            g = [self._features(view) for view in batch.source_views[1:]]
        order = (0, 1, 2, 0, 0) if released else range(len(g))
        ce = [F.cross_entropy(self.heads[i](x), labels) for i, x in zip(order, g, strict=True)]
        terms = {"ensemble": torch.stack(ce).sum()}
        if not (frozen or released):
            terms["ce"] = F.cross_entropy(self.classifier(g[0]), labels)
        return terms

    def _adapt(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """CE(G) + λ/2 · weighted domain loss; `progress` is the share of adversarial steps done."""
        g_s, g_t = (self._features(v[0]) for v in (batch.source_views, batch.target_views))
        w_s = self.class_weight[batch.source_labels]  # w^s(x) = V[y]
        w_t = self._certainty(g_t).mean(1).detach()  # w^t = (c + 1 − s + 1 − e) / 3
        # One batch of both domains: separate batch statistics would hide their difference.
        g = reverse_gradient(torch.cat([g_s, g_t]), reversal_strength(progress / self.config.ramp))
        d_s, d_t = self.discriminator(g).split([len(g_s), len(g_t)])
        return {
            "ce": F.cross_entropy(self.classifier(g_s), batch.source_labels),
            "adversarial": self.config.lam / 2 * domain_adversarial(d_s, d_t, w_s, w_t),
        }

    def refresh(self, extract: FeatureExtractor, step: int) -> None:
        """Measure the range of certainty and the class weights V on the target."""
        g = extract("target", through=self.bottleneck)
        measures = self._certainty(g)
        self.least.copy_(measures.amin(0))
        self.largest.copy_(measures.amax(0))
        known = transferability(measures, self.least, self.largest) >= self.config.w0
        self.class_weight.copy_(class_weights(self.classifier(g).softmax(1), known))

    def predict(self, images: Tensor) -> Outputs:
        """Unknown iff the score is at most w0."""
        g = self._features(images)
        score = transferability(self._certainty(g), self.least, self.largest)
        return Outputs(self.classifier(g).softmax(1), self.config.w0 - score, g)
