"""The backbone wrapper: images in [0, 1] → features (B, D), around any network."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, Self, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from unida.config import CpuPrecision
from unida.errors import UserError, require
from unida.models.backbones.cpu import MIN_IMAGES, CpuRuntime
from unida.utils import distributed

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PRECOMPUTED = "given"


class WeightsSource(NamedTuple):
    """Where a network's weights were read: a file, and the repository of the hub it is from."""

    backbone: str
    file: str
    repository: str | None


class Backbone(nn.Module):
    """A network with its input normalisation: (B, 3, H, W) in [0, 1] → (B, D), float32.

    A batch that is (B, D) already, the stored embeddings of a frozen backbone, passes through.
    The network computes in float32 except inside `precision`.

    Args:
        net: maps normalised images to (B, `net.out_features`); it may state `image_statistics`,
            mean and standard deviation by channel (default: ImageNet's).
        spec: what `rebuild_backbone` needs to make the same network again, as JSON text.
        pretrained: whether its weights were learned elsewhere.

    Attributes:
        cpu_precision: of evaluation on a CPU.
        weights_source: the file that its first weights are from; None without one.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, net: nn.Module, spec: str, pretrained: bool = False) -> None:
        super().__init__()
        self.net, self.spec, self.pretrained = net, spec, pretrained
        self.out_features = int(cast(Any, net).out_features)
        mean, std = getattr(net, "image_statistics", (IMAGENET_MEAN, IMAGENET_STD))
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1))
        self.dtype: torch.dtype | None = None
        self._gathers = False
        self._bn_frozen = False
        self._compiled: Callable[[Tensor], Tensor] | None = None
        self.cpu_precision: CpuPrecision = "fp32"
        self.weights_source: WeightsSource | None = None
        self._cpu, self._to_evaluate = CpuRuntime(), 0

    @property
    def is_precomputed(self) -> bool:
        """Whether features are given in its place, so that there is no network."""
        return isinstance(self.net, Embeddings)

    @contextmanager
    def precision(self, dtype: torch.dtype | None) -> Iterator[None]:
        """Compute in `dtype` inside the block; None is float32. Features are float32 either way."""
        before, self.dtype = self.dtype, dtype
        try:
            yield
        finally:
            self.dtype = before

    @property
    def evaluation_precision(self) -> CpuPrecision:
        """The arithmetic of `evaluating` on the device where the network is."""
        return self.cpu_precision if self.mean.device.type == "cpu" else "fp32"

    @contextmanager
    def evaluating(self, n_images: int) -> Iterator[None]:
        """Evaluate about so many images inside the block: on a CPU as fast as pays for them.

        Features differ by rounding only, except in `cpu_precision` bf16.
        """
        before, self._to_evaluate = self._to_evaluate, n_images
        try:
            yield
        finally:
            self._to_evaluate = before

    @contextmanager
    def gather_features(self) -> Iterator[None]:
        """Return the features of all processes inside the block; each is given its shard."""
        before, self._gathers = self._gathers, distributed.world_size() > 1
        try:
            yield
        finally:
            self._gathers = before

    def freeze_bn_stats(self) -> None:
        """Use the stored statistics of batch norm from here on, in training too."""
        self._bn_frozen = True
        self.train(self.training)

    def compile_training(self) -> None:
        """Run training on fused kernels from here on; the first step takes a minute."""
        self._compiled = torch.compile(self.net.forward, dynamic=False)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if mode:
            self._cpu.drop()
        if self._bn_frozen:
            for module in self.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        return self

    def _apply(self, *args: Any, **options: Any) -> Self:
        before = self.mean.device, self.mean.dtype
        super()._apply(*args, **options)  # type: ignore[no-untyped-call]
        if before != (self.mean.device, self.mean.dtype):
            self._cpu.drop()
        return self

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        self._cpu.drop()
        super()._load_from_state_dict(*args, **options)

    def forward(self, images: Tensor) -> Tensor:
        if images.ndim == 2:  # embedded already: the backbone is frozen
            features = images
        elif self._to_evaluate and images.device.type == "cpu" and not self.training:
            features = self._evaluate_on_cpu(images)
        else:
            network = self._compiled if self._compiled and self.training else self.net
            features = self._compute(network, self._normalise(images))
        return self.gather(features)

    def gather(self, rows: Tensor) -> Tensor:
        """Gather the rows of all processes inside `gather_features`; outside it, do nothing."""
        return distributed.gather(rows) if self._gathers else rows

    def each(self, batches: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Compute the features of several batches, in one forward where batch norm allows it.

        Batch norm that uses statistics of the batch gets one batch at a time.
        """
        if self._gathers or not self._bn_frozen:
            return tuple(self(batch) for batch in batches)
        return torch.split(self(torch.cat(tuple(batches))), [len(batch) for batch in batches])

    def forward_features(self, images: Tensor) -> Tensor:
        """Compute the feature map before the last stage, (B, C, h, w); our own networks only."""
        if images.ndim == 2:
            raise UserError("This method needs feature maps of the backbone: leave --frozen out.")
        require(
            hasattr(self.net, "forward_features"),
            "backbone",
            type(self.net).__name__,
            "one of our own",
        )
        return self._compute(cast(Any, self.net).forward_features, self._normalise(images))

    def forward_head(self, feature_map: Tensor) -> Tensor:
        """Compute features of that map: `forward_head(forward_features(x))` equals `forward(x)`."""
        return self._compute(cast(Any, self.net).forward_head, feature_map)

    def _evaluate_on_cpu(self, images: Tensor) -> Tensor:
        pays = self._to_evaluate >= MIN_IMAGES and not torch.is_grad_enabled()
        if pays and self._cpu.prepare(_Normalised(self), images, self.cpu_precision):
            return self._cpu(images)
        with self.precision(torch.bfloat16 if self.cpu_precision == "bf16" else self.dtype):
            return self._compute(self.net, self._normalise(images))

    def _normalise(self, images: Tensor) -> Tensor:
        x = (images - self.mean) / self.std
        if images.device.type == "cuda" or not self.training:  # faster, on a CPU too
            x = x.contiguous(memory_format=torch.channels_last)
        return x

    def _compute(self, part: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        with torch.autocast(
            x.device.type, self.dtype or torch.float32, enabled=self.dtype is not None
        ):
            return part(x).float()


class _Normalised(nn.Module):
    """A network with its normalisation and nothing else, for a conversion."""

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.net = backbone.net
        self.register_buffer("mean", backbone.mean)
        self.register_buffer("std", backbone.std)
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.net((images - self.mean) / self.std)
        return features


@contextmanager
def evaluating(module: nn.Module, n_images: int) -> Iterator[None]:
    """Evaluate about so many images inside the block by every backbone in a module."""
    with ExitStack() as stack:
        for part in module.modules():
            if isinstance(part, Backbone):
                stack.enter_context(part.evaluating(n_images))
        yield


class Embeddings(nn.Module):
    """The place of a network where its features are given; it has no forward."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out_features = width


def precomputed_features(width: int) -> Backbone:
    """Build the placeholder for a backbone whose features, `width` numbers an image, are given."""
    spec = json.dumps({"name": PRECOMPUTED, "out_features": width})
    return Backbone(Embeddings(width), spec, pretrained=True)
