"""DANCE: Domain Adaptative Neighborhood Clustering via Entropy optimization.

Saito et al., "Universal Domain Adaptation through Self-Supervision", NeurIPS 2020.

Where paper and released code differ, and what is the default here:

* Target view: released, centre crops without mirroring, by an oversight (transforms are keyed by
  list file, and the test list is the same); default, the source's view; see `target_view`.
* Entropy separation within the margin: 0 in the paper; released and default, the constant −m.
* ρ: released, about ½ ln K typed into each configuration; default, a share of ln K.
* ε = 1e−5 in the losses' logarithms, as released; the entropy of a prediction is exact here, where
  the released one fails on a probability of 0.
* Prototypes: released, scaled before every forward, outside the graph; default, within the graph
  and set to unit length after every step. A step turns them equally far.

The margin m is in nats, as in the paper: with K = 2 no entropy is m = 0.5 away from ρ, and entropy
separation has no effect unless m is below ½ ln 2 = 0.35. The memory holds a float32 feature per
target image: 8 GB for a million images of 2,048 dimensions.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from unida.data.augmentations import EVAL_VIEW, WEAK_VIEW
from unida.errors import require
from unida.losses import entropy_separation, neighbourhood_clustering
from unida.methods.base import About, Method, require_range
from unida.models.backbones.base import Backbone
from unida.models.heads import UnitLinear
from unida.models.layers import MemoryBank
from unida.types import Batch, Outputs, Sizes


@dataclass(frozen=True)
class DANCEConfig:
    """Settings of DANCE, in the paper's symbols.

    Attributes:
        eta: η, weight of both losses on the target.
        rho: ρ, the entropy between known and unknown, as a share of the maximum, ln K.
        m: margin around ρ without a gradient, in nats.
        tau: τ, temperature of classifier and similarities.
        momentum: of a memory row when its image is visited again.
        target_view: `random`, the source's; `centre`, as released.
    """

    eta: float = 0.05
    rho: float = 0.5
    m: float = 0.5
    tau: float = 0.05
    momentum: float = 0.0
    target_view: Literal["random", "centre"] = "random"

    def __post_init__(self) -> None:
        require_range(self, 0, 1000, "eta")
        require_range(self, 0, 100, "m")
        require(0 < self.rho < 1, "rho", self.rho, "between 0 and 1")
        require_range(self, 0.005, 10, "tau")
        require(0 <= self.momentum < 1, "momentum", self.momentum, "from 0 up to, not including, 1")


class DANCE(Method):
    about = About(
        paper="Universal Domain Adaptation through Self-Supervision",
        venue="NeurIPS 2020",
        rule="entropy above half its maximum",
        spec="released code",
    )
    Config = DANCEConfig
    config: DANCEConfig
    capturable = True
    training_only = ("memory.rows",)

    def __init__(self, config: DANCEConfig, backbone: Backbone, sizes: Sizes) -> None:
        super().__init__(config, backbone, sizes)
        width = backbone.out_features
        self.prototypes = UnitLinear(width, sizes.n_classes, config.tau)  # W
        self.prototypes.scale_rows()
        self.memory = MemoryBank(sizes.n_target, width)  # V
        self.rho = config.rho * math.log(sizes.n_classes)
        self.target_views = (WEAK_VIEW if config.target_view == "random" else EVAL_VIEW,)
        self._unit: Tensor | None = None

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        c = self.config
        source = self.prototypes(F.normalize(self.backbone(batch.source_views[0])))
        unit = F.normalize(self.backbone(batch.target_views[0]))
        target = self.prototypes(unit)
        nc = neighbourhood_clustering(target, unit, self.memory.rows, batch.target_index, c.tau)
        self._unit = unit.detach()
        return {
            "ce": F.cross_entropy(source, batch.source_labels),  # L_cls
            "nc": c.eta * nc,  # η L_nc, neighbourhood clustering
            "es": c.eta * entropy_separation(target, self.rho, c.m),  # η L_es, entropy separation
        }

    def predict(self, images: Tensor) -> Outputs:
        """Unknown iff H(p) > ρ."""
        f = self.backbone(images)
        log_p = self.prototypes(F.normalize(f)).log_softmax(1)
        p = log_p.exp()
        return Outputs(p, -(p * log_p).sum(1) - self.rho, f)

    def after_step(self, batch: Batch) -> None:
        """Store the features of this step's forward pass, as the released code does."""
        assert self._unit is not None
        self.memory.update(batch.target_index, self._unit, self.config.momentum)
        self.prototypes.scale_rows()
