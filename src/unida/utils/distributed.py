"""Several processes that train one model: each shows its share of a batch to the backbone.

Features are gathered, with gradient, so that losses, memories and clusters see the whole batch and
are the same in every process. A single process is a team of one, and nothing here does anything.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from accelerate import PartialState
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

T = TypeVar("T")


def setup(device: torch.device) -> None:
    """Joins the processes that a launcher started, if one did."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        PartialState(cpu=device.type == "cpu")


def world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def is_main_process() -> bool:
    """Whether this is the process that writes and speaks."""
    return rank() == 0


def shard(n: int) -> slice:
    """This process's part of n things, in order; parts differ by one at the most."""
    return slice(n * rank() // world_size(), n * (rank() + 1) // world_size())


@contextmanager
def main_process_first() -> Iterator[None]:
    """One process of a machine goes through the block before the others: it fills the caches."""
    waits = world_size() > 1 and int(os.environ.get("LOCAL_RANK", "0")) > 0
    if waits:
        dist.barrier()
    yield
    if world_size() > 1 and not waits:
        dist.barrier()


def gather(rows: Tensor) -> Tensor:
    """The rows of all processes, in order. Everyone then computes the same loss of them."""
    return _Gather.apply(rows) if world_size() > 1 else rows  # type: ignore[no-untyped-call]


def all_reduce_sum(x: Tensor) -> Tensor:
    """The sum over all processes, with gradient."""
    return _Total.apply(x) if world_size() > 1 else x  # type: ignore[no-untyped-call]


def gather_objects(items: list[T]) -> list[T]:
    """The items of all processes, in order."""
    if world_size() == 1:
        return items
    parts: list[list[T]] = [[] for _ in range(world_size())]
    dist.all_gather_object(parts, items)
    return [item for part in parts for item in part]


@torch.no_grad()
def broadcast_buffers(module: nn.Module) -> None:
    """Gives every process the first one's buffers."""
    if world_size() > 1:
        for buffer in module.buffers():
            dist.broadcast(buffer, 0)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        counts = [torch.zeros(1, dtype=torch.long, device=rows.device) for _ in range(world_size())]
        dist.all_gather(counts, torch.tensor([len(rows)], device=rows.device))
        numbers = [int(count) for count in counts]
        ctx.start, ctx.rows = sum(numbers[: rank()]), len(rows)
        most = max(numbers)
        padded = torch.cat([rows, rows.new_zeros(most - len(rows), *rows.shape[1:])])
        parts = [torch.empty_like(padded) for _ in numbers]
        dist.all_gather(parts, padded.contiguous())
        return torch.cat([part[:n] for part, n in zip(parts, numbers, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        # The launcher's averaging of gradients divides by the number of processes; the sum over
        # their shares is meant.
        return grad[ctx.start : ctx.start + ctx.rows] * world_size()


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad


class _OverTheTeam(_BatchNorm):
    """Batch norm over the shares of all processes, as if one had seen the whole batch."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or world_size() == 1:
            return super().forward(x)
        x32, others = x.float(), [d for d in range(x.ndim) if d != 1]
        n = all_reduce_sum(x32.new_tensor([x32.numel() / x32.shape[1]]))
        mean, square = all_reduce_sum(torch.stack([x32.sum(others), x32.square().sum(others)])) / n
        variance = (square - mean.square()).clamp_min(0)
        if self.track_running_stats:
            self._keep(mean, variance * n / (n - 1))
        scale = (variance + self.eps).rsqrt() * self.weight
        shape = [1, -1, *[1] * (x.ndim - 2)]
        shift = self.bias - mean * scale
        out: Tensor = x32 * scale.view(shape) + shift.view(shape)
        return out.to(x.dtype)

    @torch.no_grad()
    def _keep(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.momentum is not None
        self.running_mean.lerp_(mean.to(self.running_mean), self.momentum)
        self.running_var.lerp_(variance.to(self.running_var), self.momentum)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked += 1


class _Norm1d(_OverTheTeam, nn.BatchNorm1d):
    pass


class _Norm2d(_OverTheTeam, nn.BatchNorm2d):
    pass


def convert_sync_batch_norm(module: nn.Module) -> None:
    """Lets the batch norms of a backbone see the whole batch."""
    kinds: dict[type, type] = {nn.BatchNorm1d: _Norm1d, nn.BatchNorm2d: _Norm2d}
    if world_size() > 1:
        for part in module.modules():
            part.__class__ = kinds.get(type(part), type(part))
