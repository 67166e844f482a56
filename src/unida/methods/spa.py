"""SPA: Subsidiary Prototype Alignment, an add-on to DCC or OVANet. A reconstruction.

Kundu et al., "Subsidiary Prototype Alignment for Universal Domain Adaptation", NeurIPS 2022.

No code was available, and of the paper only its idea: word prototypes for mid-level features,
sparse assignments to them, a word histogram that takes part in the classification, and a pretext
task on histograms. Forms and numbers are this file's, so results are no reproduction. Choices:

* The feature map is that after stage 3 of a ResNet (before the linear layer of `small_cnn`).
  Locations and words have unit length. Words are initialised by k-means on both domains' locations
  (ten per word, from as many images of each at most); `lam_m` makes a batch use all of them.
* The histogram, times K_w so that a uniform one is all ones, passes a `Neck` and is used `beside`
  the pooled features or `instead` of them (`use`).
* Pretext task: the number of images, 1 to G, in a mosaic of 3 × 3 pieces. Mosaics do not update
  the running averages of batch norm, since no prediction is made on one.
* The base method is unchanged, its reject rule included; `base_set` has its settings.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from unida.config import parse_settings
from unida.data.augmentations import WEAK_VIEW
from unida.errors import require
from unida.losses import assignment_entropy, word_usage
from unida.methods.base import (
    About,
    DomainName,
    FeatureExtractor,
    Method,
    random_subset,
    require_range,
)
from unida.methods.dcc import DCC
from unida.methods.ovanet import OVANet
from unida.models.backbones.base import Backbone
from unida.models.heads import Neck
from unida.ops.kmeans import kmeans
from unida.ops.mixing import draw_mosaics, make_mosaics
from unida.ops.visual_words import word_histogram, word_logits
from unida.types import Batch, Outputs, Sizes

BASES: dict[str, type[Method]] = {"dcc": DCC, "ovanet": OVANet}
_LOCATIONS_PER_WORD = 10  # for k-means


@dataclass(frozen=True)
class SPAConfig:
    """Settings of SPA; all values are a reconstruction.

    Attributes:
        base: the base method.
        base_set: settings of the base method, as in `lam=0.2,q=4`.
        words: K_w, size of the vocabulary.
        tau: τ, temperature of the assignment.
        lam_p: λ_p, weight of the pretext task, in each domain.
        lam_e: λ_e, weight of the entropy of assignments.
        lam_m: λ_m, weight of the divergence of word usage from uniform.
        g_max: G, maximum number of images in a mosaic.
        use: the histogram `beside` the backbone's features or `instead` of them.
        width: dimensions of the projected histogram.
    """

    base: Literal["dcc", "ovanet"] = "dcc"
    base_set: str = ""
    words: int = 512
    tau: float = 0.1
    lam_p: float = 0.5
    lam_e: float = 0.1
    lam_m: float = 0.1
    g_max: int = 4
    use: Literal["beside", "instead"] = "beside"
    width: int = 256

    def __post_init__(self) -> None:
        require(self.base in BASES, "base", self.base, ", ".join(BASES))
        self.base_config()
        require_range(self, 0, 1000, "lam_p", "lam_e", "lam_m")
        require_range(self, 0.005, 10, "tau")
        require_range(self, 2, 9, "g_max")
        require_range(self, 2, 16384, "words", "width")

    def base_config(self) -> Any:
        """Parse the base method's settings."""
        settings = tuple(self.base_set.split(",")) if self.base_set else ()
        return parse_settings(BASES[self.base].Config, settings, self.base)


class _AugmentedBackbone(Backbone):
    """A backbone whose features are computed from images by a function, at another width."""

    def __init__(
        self, backbone: Backbone, features: Callable[[Tensor], Tensor], width: int
    ) -> None:
        super().__init__(backbone.net, backbone.spec, backbone.pretrained)
        self.features, self.out_features = features, width

    def forward(self, images: Tensor) -> Tensor:
        if images.ndim == 2:  # features already
            return images
        return self.features(images)

    @contextmanager
    def computing(self, features: Callable[[Tensor], Tensor]) -> Iterator[None]:
        """Compute other features within the context."""
        before, self.features = self.features, features
        try:
            yield
        finally:
            self.features = before


@contextmanager
def _frozen_running_stats(module: nn.Module) -> Iterator[None]:
    """Keep batch norm's running averages unchanged within the context."""
    norms = [m for m in module.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True


class SPA(Method):
    about = About(
        paper="Subsidiary Prototype Alignment for Universal Domain Adaptation",
        venue="NeurIPS 2022",
        rule="the base method's",
        spec="reconstruction",
    )
    Config = SPAConfig
    config: SPAConfig
    backbone: _AugmentedBackbone

    def __init__(self, config: SPAConfig, backbone: Backbone, sizes: Sizes) -> None:
        channels = getattr(backbone.net, "map_channels", 0)
        fits, allowed = channels > 0 and not sizes.frozen, "small_cnn or a resnet, without --frozen"
        require(fits, "backbone", type(backbone.net).__name__, allowed)
        beside = backbone.out_features if config.use == "beside" else 0
        augmented = _AugmentedBackbone(backbone, self.features, beside + config.width)
        super().__init__(config, augmented, sizes)
        self.words = nn.Parameter(F.normalize(torch.randn(config.words, channels)))
        self.project = Neck(config.words, config.width)
        self.pretext = nn.Linear(config.words, config.g_max)
        self.base = base = BASES[config.base](config.base_config(), augmented, sizes)
        del base.backbone  # shared, not owned, or the state would hold it twice
        object.__setattr__(base, "backbone", augmented)
        self.source_views, self.target_views = base.source_views, base.target_views or (WEAK_VIEW,)
        self.refresh_every = base.refresh_every or sizes.steps
        self.training_only = tuple(f"base.{name}" for name in base.training_only)
        self._logits: list[Tensor] = []  # word logits of the base method's forward passes

    def features(self, images: Tensor) -> Tensor:
        """Compute the features that the base method uses as the backbone's."""
        middle = self.backbone.forward_features(images)
        logits, h = self._assign(middle)
        if self.training:
            self._logits.append(logits)
        gather = self.backbone.gather  # the shards of all processes
        histogram: Tensor = self.project(gather(h))
        if self.config.use == "instead":
            return histogram
        return torch.cat([gather(self.backbone.forward_head(middle)), histogram], 1)

    def _assign(self, middle: Tensor) -> tuple[Tensor, Tensor]:
        """Word logits of a map's locations, and its histogram times K_w."""
        logits = word_logits(F.normalize(middle), F.normalize(self.words), self.config.tau)
        return logits, self.config.words * word_histogram(logits)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        c, self._logits = self.config, []
        terms = self.base.losses(batch)  # L_base, which fills self._logits
        logits, self._logits = torch.cat(self._logits), []
        return terms | {
            "sparse": c.lam_e * assignment_entropy(logits),  # λ_e L_e
            "unused": c.lam_m * word_usage(logits),  # λ_m L_m
            "pretext_source": c.lam_p * self._pretext(batch.source_views[0]),  # λ_p L_p
            "pretext_target": c.lam_p * self._pretext(batch.target_views[0]),  # λ_p L_p
        }

    def _pretext(self, images: Tensor) -> Tensor:
        """Cross-entropy of the number g of images in a mosaic, from its histogram."""
        g, sources, pieces = draw_mosaics(len(images), self.config.g_max)
        with _frozen_running_stats(self.backbone):
            middle = self.backbone.forward_features(make_mosaics(images, sources, pieces))
        _, h = self._assign(middle)
        return F.cross_entropy(self.pretext(h), torch.as_tensor(g - 1, device=h.device))

    def predict(self, images: Tensor) -> Outputs:
        return self.base.predict(images)

    def refresh(self, extract: FeatureExtractor, step: int) -> None:
        """Initialise the words before the first step, then refresh the base method."""
        if step == 0:
            limit, sizes = _LOCATIONS_PER_WORD * self.config.words, self.sizes
            with self.backbone.computing(self._locations):
                source = extract("source", random_subset(sizes.n_source, limit)).flatten(0, 1)
                target = extract("target", random_subset(sizes.n_target, limit)).flatten(0, 1)
            rows = torch.cat([source, target])[torch.randperm(len(source) + len(target))[:limit]]
            centres, _ = kmeans(rows, self.config.words, restarts=1)
            self.words[: len(centres)] = centres
        self.base.refresh(extract, step)

    def _locations(self, images: Tensor) -> Tensor:
        """Draw R locations of each image's map, (B, R, D), for k-means."""
        rows = F.normalize(self.backbone.forward_features(images)).flatten(2).transpose(1, 2)
        n_images = self.sizes.n_source + self.sizes.n_target
        per_image = math.ceil(_LOCATIONS_PER_WORD * self.config.words / n_images)
        return rows[:, torch.randperm(rows.shape[1])[:per_image]]

    def extra(self, step: int, draws: Generator) -> dict[str, tuple[DomainName, Tensor]]:
        return self.base.extra(step, draws)

    def after_step(self, batch: Batch) -> None:
        self.words.copy_(F.normalize(self.words))
        self.base.after_step(batch)
