"""The contract of a method: named losses for a batch, outputs for images."""

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
        transductive: whether the label of an image depends on the others labelled with it.
    """

    paper: str
    venue: str
    rule: str
    spec: Literal["released code", "reconstruction"]
    transductive: bool = False


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that share a learning rate, a factor of the run's.

    Without `momentum` they have none; a `weight_decay` of None is the run's.
    """

    name: str
    parameters: list[nn.Parameter]
    lr: float = 1.0
    momentum: bool = True
    weight_decay: float | None = None


class FeatureExtractor(Protocol):
    """Features of a domain, in evaluation mode and without gradient."""

    source_labels: Tensor

    def __call__(
        self,
        domain: DomainName,
        index: Tensor | None = None,
        through: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Compute the backbone's features of images without augmentation, (N, D).

        Args:
            domain: whose images.
            index: indices of the images, in this order; by default all.
            through: applied to the features (B, D) of each batch; only its result is kept.
        """
        ...


class Method(nn.Module, ABC):
    """The contract of every method: `losses`, `predict` and a few optional hooks.

    The loop sums the losses, steps and logs; a method never calls `backward`, moves tensors
    between devices, prints or opens files. State that must survive a restart is a buffer of fixed
    shape.

    Attributes:
        about: where it comes from.
        Config: frozen dataclass of the method's settings, in the paper's symbols.
        source_views: augmentation of each source view; empty if no source image is needed.
        target_views: augmentation of each target view, likewise.
        refresh_every: steps between two calls of `refresh`; 0 for never.
        training_only: names of buffers that no prediction reads, such as memories: a checkpoint
            has them, a stored model does not.
        starts_from: methods whose trained models can stand for the source: a run that is given one
            has no source images. Empty for methods that need them.
        capturable: whether every step launches the same kernels: no branch on the step or on
            values of tensors, no synchronisation. Such a step may be recorded as a CUDA graph.
    """

    about: ClassVar[About]
    Config: ClassVar[type]
    source_views: tuple[View, ...] = (WEAK_VIEW,)
    target_views: tuple[View, ...] = (WEAK_VIEW,)
    refresh_every: int = 0
    training_only: tuple[str, ...] = ()
    starts_from: ClassVar[tuple[str, ...]] = ()
    capturable: bool = False

    def __init__(self, config: Any, backbone: Backbone, sizes: Sizes) -> None:
        super().__init__()
        self.config, self.backbone, self.sizes = config, backbone, sizes

    @abstractmethod
    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Compute named scalars, already weighted; the loop minimises their sum."""

    @abstractmethod
    def predict(self, images: Tensor) -> Outputs:
        """Compute class probabilities and the unknown score; the own rule rejects from zero on."""

    def start_from(self, source: "Method") -> None:
        """Take over the heads of a source model, where `starts_from` has its method."""
        raise NotImplementedError

    def postprocess(self, outputs: Outputs) -> Outputs:
        """Change the outputs on a whole set at once; for transductive methods."""
        return outputs

    def head_groups(self) -> list[ParameterGroup]:
        """Group all parameters but the backbone's by learning rate; by default the run's."""
        of_backbone = {id(p) for p in self.backbone.parameters()}
        return [ParameterGroup("heads", [p for p in self.parameters() if id(p) not in of_backbone])]

    def drop_training_state(self) -> None:
        """Remove the buffers that only training needs; predictions do not change."""
        for name in self.training_only:
            place, _, buffer = name.rpartition(".")
            setattr(self.get_submodule(place), buffer, None)

    # Hooks of the loop, in the order they are called.

    def refresh(self, extract: FeatureExtractor, step: int) -> None:
        """Update clusters and the like: before step 0, every `refresh_every` steps, at the end."""

    def extra(self, step: int, draws: Generator) -> dict[str, tuple[DomainName, Tensor]]:
        """Request more images for a step, by name: a domain and indices; shown in `WEAK_VIEW`."""
        return {}

    def after_step(self, batch: Batch) -> None:
        """Update memories and the like after the optimiser's step, without gradient."""

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return self.losses(batch)


# What settings of many methods have in common.


def require_range(config: object, least: float, most: float, *names: str) -> None:
    """Require settings in a range, ends included; None passes."""
    for name in names:
        value = getattr(config, name)
        ok = value is None or least <= value <= most
        require(ok, name, value, f"from {least} to {most}")


def resolve_bounded(field: str, value: int | None, usual: int, most: int, what: str) -> int:
    """Return a number that is bounded by the data: the usual one, or all there are if fewer.

    Args:
        field: the setting.
        value: chosen by the user; None for the usual one.
        usual: the paper's.
        most: how many there are.
        what: of what, for the error sentence.
    """
    if value is None:
        return min(usual, most)
    require(value <= most, field, value, f"at most {most}, the number of {what}")
    return value


def random_subset(n: int, most: int) -> Tensor:
    """Draw indices of at most `most` of n images; all of them in order if there are no more."""
    return torch.randperm(n)[:most] if n > most else torch.arange(n)
