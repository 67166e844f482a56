"""One training step: losses, gradients and their norm, the optimiser, the method's memories.

The kernels of a step are short: a GPU is done with one before the next is launched. Where a step
is the same kernels every time, it is recorded once as a CUDA graph and launched as one.
"""

from collections.abc import Callable

import torch
from accelerate import Accelerator
from torch import Tensor

from unida.config import RunConfig
from unida.errors import UserError
from unida.methods import Method
from unida.types import Batch
from unida.utils import distributed

Numbers = dict[str, Tensor]
"""What a step reports: its loss, the terms of it and the norm of the gradient, on the device."""

WARM_UP = 3
"""Steps before the recording: libraries choose their kernels and workspaces in them."""


def use_cuda_graphs(config: RunConfig, method: Method, device: torch.device) -> bool:
    """Resolve `cuda_graphs`: auto is on wherever that can be done."""
    can = device.type == "cuda" and method.capturable and distributed.world_size() == 1
    compute = config.compute
    if (compute.compile or compute.cuda_graphs == "on") and not can:
        option = "--compile" if compute.compile else "--cuda-graphs on"
        raise UserError(
            f"{option} cannot be used with {config.method} here: it needs a CUDA device, one "
            "process and a method whose steps are all alike. Leave it out."
        )
    return can and compute.cuda_graphs != "off"


def make_step(
    cuda_graphs: bool,
    compiled: bool,
    method: Method,
    model: Callable[[Batch], Numbers],
    optimizer: torch.optim.Optimizer,
    accelerator: Accelerator,
    dtype: torch.dtype | None = None,
) -> Callable[[Batch], Numbers]:
    """Make the step of a run.

    Args:
        cuda_graphs: whether to record the step; resolved.
        compiled: whether to compile the backbone before.
        method: to be trained.
        model: the method as the accelerator prepared it.
        optimizer: as the accelerator prepared it.
        accelerator: computes the gradients.
        dtype: what the backbone computes in during a step; everything else is in full precision.
    """
    step = Step(method, model, optimizer, accelerator, dtype)
    if compiled:
        method.backbone.compile_training()
    return CapturedStep(step) if cuda_graphs else step


class Step:
    """The step, kernel by kernel."""

    def __init__(
        self,
        method: Method,
        model: Callable[[Batch], Numbers],
        optimizer: torch.optim.Optimizer,
        accelerator: Accelerator,
        dtype: torch.dtype | None,
    ) -> None:
        self.method, self.model, self.dtype = method, model, dtype
        self.optimizer, self.accelerator = optimizer, accelerator
        self.learning = [p for p in method.parameters() if p.requires_grad]

    def __call__(self, batch: Batch) -> Numbers:
        backbone = self.method.backbone
        with backbone.precision(self.dtype), backbone.gather_features():
            return self._train(batch)

    def _train(self, batch: Batch) -> Numbers:
        terms = self.model(batch)
        total = torch.stack(list(terms.values())).sum()
        self.optimizer.zero_grad()
        self.accelerator.backward(total)
        grads = [p.grad for p in self.learning if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(grads)
        self.optimizer.step()
        with torch.no_grad():
            self.method.after_step(batch)
        numbers = {"loss": total, **terms, "grad_norm": norm}
        return {name: value.detach().float() for name, value in numbers.items()}


class CapturedStep:
    """The same kernels in the same order, recorded after a few steps and replayed from then on.

    What goes in and what comes out lies in the same memory every time.
    """

    def __init__(self, step: Step) -> None:
        self.step = step
        self.n_steps = 0
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.graph: torch.cuda.CUDAGraph | None = None
        self.batch: Batch | None = None
        self.numbers: Numbers = {}

    def __call__(self, batch: Batch) -> Numbers:
        self.n_steps += 1
        if self.n_steps <= WARM_UP:
            return self._aside(batch)
        if self.graph is None:
            self._record(batch)
        else:
            assert self.batch is not None
            torch._foreach_copy_(self.batch.tensors(), batch.tensors())
        assert self.graph is not None
        self.graph.replay()
        return self.numbers

    def _aside(self, batch: Batch) -> Numbers:
        """A step on the stream of the recording, which must not be the usual one."""
        usual = torch.cuda.current_stream()
        self.stream.wait_stream(usual)
        with torch.cuda.stream(self.stream):
            numbers = self.step(batch)
        usual.wait_stream(self.stream)
        return {name: value.clone() for name, value in numbers.items()}

    def _record(self, batch: Batch) -> None:
        self.batch, self.graph = batch, torch.cuda.CUDAGraph()
        self.step.optimizer.zero_grad()  # so that the recording makes its own gradients
        # `thread_local`: another thread may fetch the next pixels meanwhile.
        with torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode="thread_local"):
            self.numbers = self.step(batch)
