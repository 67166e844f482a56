"""What a method is: parts built on a backbone, named losses for a batch, outputs for images."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Generator, Tensor, nn

from unida.data.augmentations import WEAK_VIEW, View
from unida.errors import require
from unida.models.backbones.base import Backbone
from unida.types import Batch, Outputs, Sizes

DomainName = Literal["source", "target"]


@dataclass(frozen=True)
class About:
    """Where a method comes from, for `unida methods` and the footers of tables.

    Attributes:
        paper: authors' title of it.
        venue: where it appeared, with the year.
        rule: how it decides on unknown, in a few words.
        spec: whether this file follows released code or reconstructs what was never published.
        transductive: whether the verdict on an image depends on the others judged with it.
    """

    paper: str
    venue: str
    rule: str
    spec: Literal["released code", "reconstruction"]
    transductive: bool = False


@dataclass(frozen=True)
class Group:
    """Parameters that share a learning rate, a factor of the run's."""

    name: str
    parameters: list[nn.Parameter]
    lr: float = 1.0


class FeatureExtractor(Protocol):
    """A look at a domain, in evaluation mode and without gradient."""

    source_labels: Tensor

    def __call__(
        self,
        domain: DomainName,
        index: Tensor | None = None,
        through: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """The backbone's features of images shown plainly: (N, D).

        Args:
            domain: whose images.
            index: numbers of those wanted, in this order; by default all. No other is embedded.
            through: what is wanted of features (B, D), a row an image; the features themselves,
                which may be long, are then not kept.
        """
        ...


class Method(nn.Module, ABC):
    """The contract every method keeps: `losses` and `predict`, and a few hooks that do nothing.

    The loop sums the losses, steps and logs; a method never calls `backward`, moves tensors
    between devices, prints or opens files. State that must survive a restart is a buffer of fixed
    shape.

    Attributes:
        about: where it comes from.
        Config: frozen dataclass of the method's settings, in the paper's symbols.
        source_views: how source images are shown, one entry a view; empty if not needed.
        target_views: how target images are shown, likewise.
        refresh_every: steps between two calls of `refresh`; 0 for never.
        training_only: names of buffers that no prediction looks at, such as memories: a checkpoint
            has them, a stored model does not.
        capturable: whether every step is the same kernels on the device: no branch on numbers of
            the step or of tensors, nothing that waits. Such a step may be recorded and replayed.
    """

    about: ClassVar[About]
    Config: ClassVar[type]
    source_views: tuple[View, ...] = (WEAK_VIEW,)
    target_views: tuple[View, ...] = (WEAK_VIEW,)
    refresh_every: int = 0
    training_only: tuple[str, ...] = ()
    capturable: bool = False

    def __init__(self, config: Any, backbone: Backbone, sizes: Sizes) -> None:
        super().__init__()
        self.config, self.backbone, self.sizes = config, backbone, sizes

    @abstractmethod
    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Named scalars, weighted already; the loop minimises their sum."""

    @abstractmethod
    def predict(self, images: Tensor) -> Outputs:
        """Class probabilities and the unknown score; the own rule rejects at zero and above."""

    def postprocess(self, outputs: Outputs) -> Outputs:
        """Sees the outputs of a whole set at once; a transductive method decides here."""
        return outputs

    def head_groups(self) -> list[Group]:
        """Everything but the backbone, at the run's learning rate unless the method says else."""
        of_backbone = {id(p) for p in self.backbone.parameters()}
        return [Group("heads", [p for p in self.parameters() if id(p) not in of_backbone])]

    def drop_training_state(self) -> None:
        """Lets go of the buffers that only training needs; what is left predicts as before."""
        for name in self.training_only:
            place, _, buffer = name.rpartition(".")
            setattr(self.get_submodule(place), buffer, None)

    # Hooks of the loop, in the order they are called.

    def refresh(self, look: FeatureExtractor, step: int) -> None:
        """Before step 0, every `refresh_every` steps and after the last: clusters and the like."""

    def extra(self, step: int, draws: Generator) -> dict[str, tuple[DomainName, Tensor]]:
        """More images for this step, by name: a domain and image numbers; shown as `WEAK`."""
        return {}

    def after_step(self, batch: Batch) -> None:
        """After the optimiser's step, without gradient: memories, unit rows."""

    def fit_target(self, look: FeatureExtractor) -> None:
        """After the last step, and before a verdict in between: what verdicts must know of the
        target. Training goes on as if it had not been called."""

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return self.losses(batch)


# What settings of many methods have in common.


def require_range(config: object, least: float, most: float, *names: str) -> None:
    """Settings that lie in a range, ends included; None, where a field may be that, is fine.

    A weight ends at 1000, where no other term is left of the sum, and a layer at 16384 neurons.
    """
    for name in names:
        value = getattr(config, name)
        ok = value is None or least <= value <= most
        require(ok, name, value, f"from {least} to {most}")


def resolve_bounded(field: str, value: int | None, usual: int, most: int, what: str) -> int:
    """A number that the data bound: the usual one or all there are, unless the user names one.

    Args:
        field: the setting.
        value: what the user asks for; None leaves it to the method.
        usual: the paper's.
        most: how many there are.
        what: of what, for the error sentence.
    """
    if value is None:
        return min(usual, most)
    require(value <= most, field, value, f"at most {most}, the number of {what}")
    return value


def random_subset(n: int, most: int) -> Tensor:
    """Numbers of images to look at: all n in order or, of more than `most`, a draw of those."""
    return torch.randperm(n)[:most] if n > most else torch.arange(n)
