"""Distributed training: every process forwards its shard of a batch through the backbone.

Features are gathered, with gradient, so that losses, memories and clusters are computed from the
whole batch and are the same in every process. In a single process all functions do nothing.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

T = TypeVar("T")


def setup(device: torch.device) -> None:
    """Join the processes that a launcher started, if one did."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        from accelerate import PartialState

        PartialState(cpu=device.type == "cpu")


def world_size() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """Return the number of this process."""
    return dist.get_rank() if dist.is_initialized() else 0


def is_main_process() -> bool:
    """Return whether this is the process that writes files and logs."""
    return rank() == 0


def shard(n: int) -> slice:
    """Return this process's part of n items; parts are in order and differ by one at most."""
    return slice(n * rank() // world_size(), n * (rank() + 1) // world_size())


@contextmanager
def main_process_first() -> Iterator[None]:
    """Run the block in one process of a machine before the others, so that it fills the caches."""
    waits = world_size() > 1 and int(os.environ.get("LOCAL_RANK", "0")) > 0
    if waits:
        dist.barrier()
    yield
    if world_size() > 1 and not waits:
        dist.barrier()


def barrier() -> None:
    """Wait for all processes."""
    if world_size() > 1:
        dist.barrier()


def gather(rows: Tensor) -> Tensor:
    """Gather the rows of all processes, in order, with gradient of the same loss in each."""
    return _Gather.apply(rows) if world_size() > 1 else rows  # type: ignore[no-untyped-call]


def all_reduce_sum(x: Tensor) -> Tensor:
    """Sum over all processes, with gradient."""
    return _Sum.apply(x) if world_size() > 1 else x  # type: ignore[no-untyped-call]


def gather_objects(items: list[T]) -> list[T]:
    """Gather the items of all processes, in order."""
    if world_size() == 1:
        return items
    parts: list[list[T]] = [[] for _ in range(world_size())]
    dist.all_gather_object(parts, items)
    return [item for part in parts for item in part]


@torch.no_grad()
def broadcast_buffers(module: nn.Module) -> None:
    """Give every process the first one's buffers."""
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
        # DDP divides gradients by the number of processes; the sum over their shards is needed.
        return grad[ctx.start : ctx.start + ctx.rows] * world_size()


class _Sum(torch.autograd.Function):
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


class _SyncBatchNorm(_BatchNorm):
    """Batch norm over the shards of all processes: the statistics of the whole batch."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or world_size() == 1:
            return super().forward(x)
        x32, others = x.float(), [d for d in range(x.ndim) if d != 1]
        n = all_reduce_sum(x32.new_tensor([x32.numel() / x32.shape[1]]))
        mean, square = all_reduce_sum(torch.stack([x32.sum(others), x32.square().sum(others)])) / n
        variance = (square - mean.square()).clamp_min(0)
        if self.track_running_stats:
            self._update(mean, variance * n / (n - 1))
        scale = (variance + self.eps).rsqrt() * self.weight
        shape = [1, -1, *[1] * (x.ndim - 2)]
        shift = self.bias - mean * scale
        out: Tensor = x32 * scale.view(shape) + shift.view(shape)
        return out.to(x.dtype)

    @torch.no_grad()
    def _update(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.momentum is not None
        self.running_mean.lerp_(mean.to(self.running_mean), self.momentum)
        self.running_var.lerp_(variance.to(self.running_var), self.momentum)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked += 1


class _SyncBatchNorm1d(_SyncBatchNorm, nn.BatchNorm1d):
    pass


class _SyncBatchNorm2d(_SyncBatchNorm, nn.BatchNorm2d):
    pass


def convert_sync_batch_norm(module: nn.Module) -> None:
    """Let the batch norms of a backbone use statistics of the whole batch."""
    kinds: dict[type, type] = {nn.BatchNorm1d: _SyncBatchNorm1d, nn.BatchNorm2d: _SyncBatchNorm2d}
    if world_size() > 1:
        for part in module.modules():
            part.__class__ = kinds.get(type(part), type(part))
