"""The device of a run, its precision, and copies to it."""

import os

import torch
from torch import Tensor

from unida.errors import UserError, require


def pick_device(name: str) -> torch.device:
    """Choose a device by name.

    `auto` is the first of cuda, mps and cpu that the machine has; a distributed process gets the
    GPU of its local rank.
    """
    if name == "auto":
        if torch.cuda.is_available() and "LOCAL_RANK" in os.environ:
            return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    require(device.type in ("cpu", "cuda", "mps"), "device", name, "auto, cpu, cuda, cuda:N, mps")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(
            f"device is {name!r}, but {torch.cuda.device_count()} CUDA devices are here."
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UserError("device is 'mps', but this machine has none.")
    return device


def pick_dtype(precision: str, device: torch.device) -> torch.dtype | None:
    """Choose what the backbone computes in, and switch TF32 on or off for the process.

    Args:
        precision: fp32, tf32, bf16, or auto: bf16 on a GPU that has it, fp32 elsewhere.
        device: where it computes.

    Returns:
        The type for autocast; None is float32.
    """
    if precision == "auto":
        fast = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        precision = "bf16" if fast else "fp32"
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    return torch.bfloat16 if precision == "bf16" else None


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Move a tensor to a device; a copy to a GPU is queued there without waiting for it."""
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
