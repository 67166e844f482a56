"""What a method is: parts built on a backbone, named losses for a batch, outputs for images."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from unida.models.backbone import Backbone
from unida.types import Batch, Outputs
from unida.views import WEAK, View


@dataclass(frozen=True)
class Group:
    """Parameters that share a learning rate, a factor of the run's."""

    name: str
    parameters: list[nn.Parameter]
    lr: float = 1.0


class Method(nn.Module, ABC):
    """The contract every method keeps.

    The loop sums the losses, steps and logs; a method never calls `backward`, moves tensors
    between devices, prints or opens files. State that must survive a restart is a buffer.

    Attributes:
        Config: frozen dataclass of the method's settings, in the paper's symbols.
        source_views: how source images are shown, one entry a view.
        target_views: how target images are shown, one entry a view; empty if they are not needed.
    """

    Config: ClassVar[type]
    source_views: tuple[View, ...] = (WEAK,)
    target_views: tuple[View, ...] = (WEAK,)

    def __init__(self, config: Any, backbone: Backbone, n_classes: int) -> None:
        super().__init__()
        self.config, self.backbone, self.n_classes = config, backbone, n_classes

    @abstractmethod
    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Named scalars, weighted already; the loop minimises their sum."""

    @abstractmethod
    def predict(self, images: Tensor) -> Outputs:
        """Class probabilities and the unknown score; the own rule rejects at zero and above."""

    def head_groups(self) -> list[Group]:
        """Everything but the backbone, at the run's learning rate unless the method says else."""
        of_backbone = {id(p) for p in self.backbone.parameters()}
        return [Group("heads", [p for p in self.parameters() if id(p) not in of_backbone])]

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return self.losses(batch)
