"""Evaluation of a network on a CPU: by OpenVINO (extra `cpu`), else by PyTorch's fused kernels.

A conversion takes seconds, so it is made for many images only. Its features are compared with
those of the network itself before it is used.
"""

import importlib.util
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from unida.config import CpuPrecision
from unida.utils.logs import logger

MIN_IMAGES = 128
"""From so many images on the conversion of a ResNet-50 takes less time than it saves."""
MIN_PARAMETERS = 1_000_000
"""A smaller network is faster than its conversion, however many images there are."""
BATCH = 16
"""Images at a time: a fixed number, as kernels are chosen for it."""
TOLERANCE: dict[CpuPrecision, float] = {"fp32": 1e-4, "bf16": 0.05}
"""Largest relative difference of features from the network's own."""
_CHECKED = 2  # images


class Key(NamedTuple):
    """What a conversion is made for."""

    shape: tuple[int, ...]
    precision: CpuPrecision
    threads: int


class CpuRuntime:
    """The conversion of a network, if there is one; a copy of the backbone starts without.

    Attributes:
        key: what it was tried for; None before that.
        run: batches of `BATCH` images → features; None where every conversion failed.
    """

    def __init__(self) -> None:
        self.key: Key | None = None
        self.run: Callable[[Tensor], Tensor] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return type(self)()

    def __reduce__(self) -> tuple[type["CpuRuntime"], tuple[()]]:
        return type(self), ()

    def drop(self) -> None:
        """Forget the conversion: the weights may change."""
        self.key = self.run = None

    def prepare(self, network: nn.Module, images: Tensor, precision: CpuPrecision) -> bool:
        """Convert a network unless that is done; return whether `__call__` can be used.

        Args:
            network: images in [0, 1] → features, in evaluation mode.
            images: the first ones.
            precision: of the arithmetic.
        """
        key = Key(tuple(images.shape[1:]), precision, torch.get_num_threads())
        if key != self.key:
            self.key = key
            large = sum(p.numel() for p in network.parameters()) >= MIN_PARAMETERS
            self.run = _convert(network, images[:_CHECKED], key) if large else None
        return self.run is not None

    def __call__(self, images: Tensor) -> Tensor:
        assert self.run is not None
        return _in_batches(self.run, images)


def is_installed() -> bool:
    """Return whether the extra is there."""
    return importlib.util.find_spec("openvino") is not None


def _convert(network: nn.Module, images: Tensor, key: Key) -> Callable[[Tensor], Tensor] | None:
    """Return the first conversion that computes the same features."""
    expected = network(images)
    makers = [_by_openvino] if is_installed() else []
    makers += [_by_torchscript] if key.precision == "fp32" else []
    for make in makers:
        try:
            with torch.inference_mode(False), torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run = make(network, key)
            found = _in_batches(run, images)
            difference = float((found - expected).norm() / expected.norm())
            if difference <= TOLERANCE[key.precision]:
                return run
            reason = f"features differ by {difference:.2g} of their length"
        except Exception as error:  # of any type: every network and every release has its own
            reason = " ".join(str(error).split())[:200] or type(error).__name__
        if make is _by_openvino:
            logger.warning("OpenVINO cannot run this backbone, so PyTorch does: %s.", reason)
        else:
            logger.debug("The backbone is not traced: %s.", reason)
    return None


def _in_batches(run: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """Give a network `BATCH` images at a time; the last are filled up."""
    parts = []
    for part in torch.split(images.contiguous(), BATCH):
        missing = part.new_zeros(BATCH - len(part), *part.shape[1:])
        parts.append(run(torch.cat([part, missing]) if len(missing) else part)[: len(part)])
    return torch.cat(parts)


def _by_openvino(network: nn.Module, key: Key) -> Callable[[Tensor], Tensor]:
    import openvino
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

    # The frontend itself: `openvino.convert_model` may send usage statistics.
    frontend = FrontEndManager().load_by_framework("pytorch")
    decoder = TorchScriptPythonDecoder(network, example_input=(torch.zeros(2, *key.shape),))
    model = frontend.convert(frontend.load(decoder))
    model.reshape([BATCH, *key.shape])
    options = {
        "INFERENCE_PRECISION_HINT": {"fp32": "f32", "bf16": "bf16"}[key.precision],
        "INFERENCE_NUM_THREADS": key.threads,
        "PERFORMANCE_HINT": "LATENCY",
        "ENABLE_CPU_PINNING": False,  # other programs may use these cores
    }
    compiled = openvino.Core().compile_model(model, "CPU", options)
    # The result lies in memory that the next call writes to.
    return lambda images: torch.from_numpy(compiled(images.numpy())[0].copy()).float()


def _by_torchscript(network: nn.Module, key: Key) -> Callable[[Tensor], Tensor]:
    """Fold batch norm into convolutions, and fuse them with what follows."""
    some = (torch.zeros(BATCH, *key.shape),)
    traced = torch.jit.trace(network, some, check_trace=False)  # type: ignore[no-untyped-call]
    fused = torch.jit.optimize_for_inference(traced)

    @torch.inference_mode(False)
    def run(images: Tensor) -> Tensor:
        with torch.no_grad():
            features: Tensor = fused(images.clone())  # outside inference mode
        return features

    return run
