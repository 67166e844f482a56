"""SPA: Subsidiary Prototype Alignment, an add-on to DCC or OVANet. A reconstruction.

Kundu et al., "Subsidiary Prototype Alignment for Universal Domain Adaptation", NeurIPS 2022.

No code was at hand, and of the paper only its idea: word prototypes for mid-level features, sparse
assignments to them, a word histogram that takes part in the classification, and a pretext task on
histograms. Forms and numbers are this file's, so results are no reproduction. Chosen here:

* The map is the one after stage 3 of a ResNet (before the linear layer of `small_cnn`). Locations
  and words have unit length. Words start as k-means centres of both domains' locations (ten a word,
  from as many images of each at most); `lam_m` asks a batch to use all of them.
* The histogram, times K_w so that an even one is all ones, goes through a `Neck` and stands
  `beside` the pooled features or `instead` of them (`use`).
* Pretext: how many images, 1 to G, a mosaic of 3 × 3 pieces is made of. Mosaics leave the running
  averages of batch norm alone: nobody will be asked about a mosaic.
* The base method is as it is by itself, decision included; `base_set` has its settings.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from unida.config import parse_settings
from unida.data.augmentations import WEAK_VIEW
from unida.errors import require
from unida.losses import (
    assignment_entropy,
    draw_mosaics,
    kmeans,
    make_mosaics,
    unused_words,
    word_histogram,
    word_logits,
)
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
from unida.types import Batch, Outputs, Sizes

BASES: dict[str, type[Method]] = {"dcc": DCC, "ovanet": OVANet}
_LOCATIONS = 10  # a word, for k-means to look at


@dataclass(frozen=True)
class SPAConfig:
    """Settings of SPA; the values are a reconstruction's.

    Attributes:
        base: the method it is added to.
        base_set: settings of that method, as in `lam=0.2,q=4`.
        words: K_w, size of the vocabulary.
        tau: τ, temperature of the assignment.
        lam_p: λ_p, weight of the pretext task, in each domain.
        lam_e: λ_e, weight of the entropy of assignments.
        lam_m: weight of the words a batch leaves unused.
        g_max: G, images in a mosaic at most.
        use: the histogram `beside` the backbone's features or `instead` of them.
        width: features made of the histogram.
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
        self.of_base()
        require_range(self, 0, 1000, "lam_p", "lam_e", "lam_m")
        require_range(self, 0.005, 10, "tau")
        require_range(self, 2, 9, "g_max")
        require_range(self, 2, 16384, "words", "width")

    def of_base(self) -> Any:
        settings = tuple(self.base_set.split(",")) if self.base_set else ()
        return parse_settings(BASES[self.base].Config, settings, self.base)


class _Sight(Backbone):
    """The backbone, but for what it answers: what `see` makes of images, of another width."""

    def __init__(self, backbone: Backbone, see: Callable[[Tensor], Tensor], width: int) -> None:
        super().__init__(backbone.net, backbone.spec, backbone.pretrained)
        self.see, self.out_features = see, width

    def forward(self, images: Tensor) -> Tensor:
        return self.see(images)


class SPA(Method):
    about = About(
        paper="Subsidiary Prototype Alignment for Universal Domain Adaptation",
        venue="NeurIPS 2022",
        rule="that of the method it is added to",
        spec="reconstruction",
    )
    Config = SPAConfig
    config: SPAConfig
    backbone: _Sight

    def __init__(self, config: SPAConfig, backbone: Backbone, sizes: Sizes) -> None:
        channels = getattr(backbone.net, "map_channels", 0)
        fits, allowed = channels > 0 and not sizes.frozen, "small_cnn or a resnet, without --frozen"
        require(fits, "backbone", type(backbone.net).__name__, allowed)
        beside = backbone.out_features if config.use == "beside" else 0
        sight = _Sight(backbone, self.features, beside + config.width)
        super().__init__(config, sight, sizes)
        self.words = nn.Parameter(F.normalize(torch.randn(config.words, channels)))
        self.project = Neck(config.words, config.width)
        self.pretext = nn.Linear(config.words, config.g_max)
        self.base = base = BASES[config.base](config.of_base(), sight, sizes)
        del base.backbone  # shared, not owned, or the state would hold it twice
        object.__setattr__(base, "backbone", sight)
        self.source_views, self.target_views = base.source_views, base.target_views or (WEAK_VIEW,)
        self.refresh_every = base.refresh_every or sizes.steps
        self.training_only = tuple(f"base.{name}" for name in base.training_only)
        self._seen: list[Tensor] = []  # word logits of the images the base looked at

    def features(self, images: Tensor) -> Tensor:
        """What the base method takes for the backbone's features."""
        middle = self.backbone.forward_features(images)
        logits, h = self._read(middle)
        if self.training:
            self._seen.append(logits)
        gather = self.backbone.gather  # the shards of all processes
        parts = [] if self.config.use == "instead" else [gather(self.backbone.forward_head(middle))]
        return torch.cat([*parts, self.project(gather(h))], 1)

    def _read(self, middle: Tensor) -> tuple[Tensor, Tensor]:
        """Word logits of a map's locations, and its histogram times K_w."""
        logits = word_logits(F.normalize(middle), F.normalize(self.words), self.config.tau)
        return logits, self.config.words * word_histogram(logits)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        c, self._seen = self.config, []
        terms = self.base.losses(batch)  # L_base
        logits, self._seen = torch.cat(self._seen), []
        return terms | {
            "sparse": c.lam_e * assignment_entropy(logits),
            "unused": c.lam_m * unused_words(logits),
            "pretext_source": c.lam_p * self._pretext(batch.source_views[0]),
            "pretext_target": c.lam_p * self._pretext(batch.target_views[0]),
        }

    def _pretext(self, images: Tensor) -> Tensor:
        """Cross-entropy of the number g of images in a mosaic, from its histogram."""
        norms = [m for m in self.backbone.modules() if isinstance(m, nn.BatchNorm2d)]
        g, owners, places = draw_mosaics(len(images), self.config.g_max)
        for norm in norms:
            norm.track_running_stats = False
        _, h = self._read(self.backbone.forward_features(make_mosaics(images, owners, places)))
        for norm in norms:
            norm.track_running_stats = True
        return F.cross_entropy(self.pretext(h), torch.as_tensor(g - 1, device=h.device))

    def predict(self, images: Tensor) -> Outputs:
        return self.base.predict(images)

    def fit_target(self, look: FeatureExtractor) -> None:
        self.base.fit_target(look)

    def refresh(self, look: FeatureExtractor, step: int) -> None:
        """Finds the words before the first step, then whatever the base method looks for."""
        if step == 0:
            most, self.backbone.see = _LOCATIONS * self.config.words, self._locations
            source = look("source", random_subset(self.sizes.n_source, most)).flatten(0, 1)
            target = look("target", random_subset(self.sizes.n_target, most)).flatten(0, 1)
            self.backbone.see = self.features
            rows = torch.cat([source, target])[torch.randperm(len(source) + len(target))[:most]]
            centres, _ = kmeans(rows, self.config.words, restarts=1)
            self.words[: len(centres)] = centres
        self.base.refresh(look, step)

    def _locations(self, images: Tensor) -> Tensor:
        """Locations of the images' maps, (B, R, D), enough for k-means."""
        rows = F.normalize(self.backbone.forward_features(images)).flatten(2).transpose(1, 2)
        n_images = self.sizes.n_source + self.sizes.n_target
        each = math.ceil(_LOCATIONS * self.config.words / n_images)
        return rows[:, torch.randperm(rows.shape[1])[:each]]

    def extra(self, step: int, draws: Generator) -> dict[str, tuple[DomainName, Tensor]]:
        return self.base.extra(step, draws)

    def after_step(self, batch: Batch) -> None:
        self.words.copy_(F.normalize(self.words))
        self.base.after_step(batch)
