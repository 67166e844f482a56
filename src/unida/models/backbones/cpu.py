"""Evaluation of a network on a CPU by OpenVINO (extra `cpu`), where that pays.

The conversion takes seconds, so it is made for many images only. Its features are compared with
PyTorch's before it is used.
"""

import importlib.util
import warnings
from typing import Any, Self

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
"""Largest relative difference of features from PyTorch's."""
_CHECKED = 2  # images


class CpuRuntime:
    """A converted network, if there is one; a copy of the backbone starts without.

    Attributes:
        call: images (B, 3, H, W) in [0, 1] → features; None before the conversion.
        failed: whether the conversion was tried in vain.
    """

    def __init__(self) -> None:
        self.call: Converted | None = None
        self.failed = False

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return type(self)()

    def __reduce__(self) -> tuple[type["CpuRuntime"], tuple[()]]:
        return type(self), ()

    def drop(self) -> None:
        """Forget the converted network: its weights may change."""
        self.call, self.failed = None, False

    def prepare(self, network: nn.Module, images: Tensor, precision: CpuPrecision) -> bool:
        """Convert a network unless that is done; return whether these images can be given to it.

        Args:
            network: images in [0, 1] → features, in evaluation mode.
            images: the first ones.
            precision: of the arithmetic.
        """
        wanted = (tuple(images.shape[1:]), precision, torch.get_num_threads())
        if self.call is not None and self.call.made_for == wanted:
            return True
        if self.failed or not is_installed() or _size(network) < MIN_PARAMETERS:
            return False
        try:
            self.call = Converted(network, *wanted)
            _compare(self.call, network, images[:_CHECKED], TOLERANCE[precision])
        except Exception as error:  # of any type: every network and every release has its own
            self.call, self.failed = None, True
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            logger.warning("OpenVINO cannot run this backbone, so PyTorch does: %s", reason)
        return self.call is not None


class Converted:
    """A network that OpenVINO runs, for images of one size."""

    def __init__(
        self, network: nn.Module, shape: tuple[int, ...], precision: CpuPrecision, threads: int
    ) -> None:
        import openvino
        from openvino.frontend import FrontEndManager
        from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

        self.made_for = (shape, precision, threads)
        some = torch.zeros(2, *shape)
        # The frontend itself: `openvino.convert_model` may send usage statistics.
        frontend = FrontEndManager().load_by_framework("pytorch")
        with torch.inference_mode(False), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            decoder = TorchScriptPythonDecoder(network, example_input=(some,))
            model = frontend.convert(frontend.load(decoder))
        model.reshape([BATCH, *shape])
        options = {
            "INFERENCE_PRECISION_HINT": {"fp32": "f32", "bf16": "bf16"}[precision],
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "ENABLE_CPU_PINNING": False,  # other programs may use these cores
        }
        self.compiled = openvino.Core().compile_model(model, "CPU", options)

    def __call__(self, images: Tensor) -> Tensor:
        parts = []
        for part in torch.split(images.contiguous(), BATCH):
            missing = BATCH - len(part)
            full = torch.cat([part, part.new_zeros(missing, *part.shape[1:])]) if missing else part
            found = self.compiled(full.numpy(), share_inputs=True)[0]
            parts.append(torch.from_numpy(found[: len(part)].copy()).float())
        return torch.cat(parts)


def is_installed() -> bool:
    """Return whether the extra is there."""
    return importlib.util.find_spec("openvino") is not None


def _size(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def _compare(call: Converted, network: nn.Module, images: Tensor, tolerance: float) -> None:
    """Raise where the features of images differ from PyTorch's."""
    expected, found = network(images), call(images)
    difference = float((found - expected).norm() / expected.norm())
    if not difference <= tolerance:
        raise ValueError(f"its features differ by {difference:.2g} of their length")
