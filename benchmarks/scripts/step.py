"""Images a second: the bare network step and our full training step, in one run.

    python benchmarks/scripts/step.py
    python benchmarks/scripts/step.py --backbone vit-small --batch 36,128 --precisions bf16

The bare step (a) is the network and nothing else: as many forwards as the method makes, of a fixed
batch on the device, a linear head, cross-entropy, backward, SGD; launched kernel by
kernel, recorded as a CUDA graph, or recorded and compiled. The full step (b) is the training loop
as users run it: batches from decoded pixels, views, all losses, optimiser, logging; launched in the
same way.
Blocks of (a) and (b) take turns, so other load on the machine slows both; the figures
are medians over blocks. Without a GPU everything is small.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from typing import Any

import machine
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unida.config import RunConfig
from unida.data.domain import Domain
from unida.methods import METHODS
from unida.models.backbones.base import Backbone
from unida.training.batches import Batches
from unida.utils.devices import pick_dtype

MODES = {
    "eager": {"cuda_graphs": "off"},
    "captured": {"cuda_graphs": "on"},
    "compiled": {"cuda_graphs": "on", "compile": True},
}
"""How a step is launched; the bare one likewise. See `ComputeConfig`."""

PRECISIONS = ("fp32", "tf32", "bf16")
ON_CPU = {
    "backbone": "small_cnn",
    "image_size": 32,
    "batch": [36],
    "precisions": ["fp32"],
    "modes": ["eager"],
    "images": 400,
    "steps": 5,
    "repeats": 5,
}
ON_CUDA = {
    "backbone": "resnet50-v1",
    "image_size": 224,
    "batch": [36],
    "precisions": list(PRECISIONS),
    "modes": ["eager", "captured"],
    "images": 4000,
    "steps": 20,
    "repeats": 7,
}
N_CLASSES = 25


class Bare:
    """One step of the network alone."""

    def __init__(self, backbone: Backbone, forwards: int, config: RunConfig, device: torch.device):
        memory = torch.channels_last if device.type == "cuda" else torch.contiguous_format
        self.net = copy.deepcopy(backbone.net).to(device, memory_format=memory).train()
        self.head = nn.Linear(backbone.out_features, N_CLASSES).to(device)
        self.dtype, self.device = pick_dtype(config.compute.precision, device), device
        shape = (config.optim.batch, 3, config.data.image_size, config.data.image_size)
        batches = (torch.rand(shape, device=device) for _ in range(forwards))
        self.images = [images.to(memory_format=memory) for images in batches]
        self.labels = torch.arange(config.optim.batch, device=device) % N_CLASSES
        self.optimizer = torch.optim.SGD(
            [*self.net.parameters(), *self.head.parameters()],
            lr=1e-4,
            momentum=0.9,
            nesterov=True,
            weight_decay=5e-4,
            fused=True,
        )
        self.forward: Callable[[Tensor], Tensor] = self.net
        self.launch = self.step

    def record(self, compiled: bool) -> None:
        """Record the step as one graph, optionally of compiled kernels."""
        if compiled:
            self.forward = torch.compile(self.net.forward, dynamic=False)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad()
        with torch.cuda.graph(graph, stream=stream):
            self.step()
        self.launch = graph.replay

    def step(self) -> None:
        losses = [F.cross_entropy(self._logits(images), self.labels) for images in self.images]
        self.optimizer.zero_grad()
        torch.stack(losses).sum().backward()
        self.optimizer.step()

    def _logits(self, images: Tensor) -> Tensor:
        low = self.dtype or torch.float32
        with torch.autocast(self.device.type, low, enabled=self.dtype is not None):
            features = self.forward(images)
        return self.head(features.float())


class TakingTurns:
    """Progress callback of the loop: after a block of its steps, a block of bare ones."""

    def __init__(self, bare: Bare, args: argparse.Namespace, device: torch.device) -> None:
        self.bare, self.device = bare, device
        self.block, self.warm_up, self.last = args.steps, args.warm_up, args.repeats * args.steps
        self.of_full: list[float] = []
        self.of_bare: list[float] = []
        self.begin = 0.0

    def __call__(self, done: int, line: dict[str, Any] | None) -> None:
        since = done - self.warm_up
        if not 0 <= since <= self.last or since % self.block:
            return
        machine.synchronise(self.device)
        full = (time.perf_counter() - self.begin) / self.block
        bare = machine.seconds(self._bare_block, self.device) / self.block
        if since:  # the first block of bare steps warms them up
            self.of_full.append(full)
            self.of_bare.append(bare)
        self.begin = time.perf_counter()

    def _bare_block(self) -> None:
        for _ in range(self.block):
            self.bare.launch()


def measure(
    name: str, domains: tuple[Domain, Domain], config: RunConfig, args: argparse.Namespace
) -> dict[str, Any]:
    """Measure a method with one batch size, precision and mode."""
    source, target = domains
    device = source.device
    torch.manual_seed(0)
    backbone = machine.build_backbone(config.model.backbone)
    sizes = machine.sizes_of(source, target, config)
    method = machine.build_method(name, (), backbone, sizes, device)
    forwards = len(method.source_views) + len(method.target_views)
    bare_step = Bare(backbone, forwards, config, device)
    if config.compute.cuda_graphs == "on":
        bare_step.record(compiled=config.compute.compile)
    turns = TakingTurns(bare_step, args, device)
    machine.drive(method, Batches(source, target, config), config, device, turns)
    bare, full = statistics.median(turns.of_bare), statistics.median(turns.of_full)
    images = forwards * config.optim.batch
    return {
        "images_per_step": images,
        "bare_ms": 1000 * bare,
        "full_ms": 1000 * full,
        "bare_images_per_second": images / bare,
        "full_images_per_second": images / full,
        "full_over_bare": bare / full,
        "bare_ms_all": [1000 * t for t in turns.of_bare],
        "full_ms_all": [1000 * t for t in turns.of_full],
    }


def run_config(
    args: argparse.Namespace, method: str, batch: int, precision: Any, mode: str
) -> RunConfig:
    """Return a run long enough for all blocks; the step after them has the last checkpoint."""
    return RunConfig.from_flat(
        method=method,
        backbone=args.backbone,
        image_size=args.image_size,
        batch=batch,
        precision=precision,
        lr=1e-4,  # the data is noise, but losses must stay finite
        steps=args.warm_up + args.repeats * args.steps + 1,
        log_every=min(50, args.steps),
        checkpoint_every=10**9,
        **MODES[mode],
    )


def options() -> argparse.ArgumentParser:
    parser = machine.parser(__doc__)
    parser.add_argument(
        "--methods", type=machine.subset_of(METHODS), default=["san", "ovanet", "dance"]
    )
    parser.add_argument("--modes", type=machine.subset_of(MODES))
    parser.add_argument("--precisions", type=machine.subset_of(PRECISIONS))
    parser.add_argument("--backbone", help="a name, hf:… or vit-small (random weights, no file)")
    parser.add_argument("--batch", type=machine.numbers, help="images a step and domain; several")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--images", type=int, help="random images per domain")
    parser.add_argument("--steps", type=int, help="in a block")
    parser.add_argument("--repeats", type=int, help="blocks")
    parser.add_argument("--warm-up", type=int, default=5, help="steps before the first block")
    parser.add_argument("--cudnn-benchmark", action="store_true", help="for both steps")
    return parser


def main(argv: list[str] | None = None) -> None:
    args = options().parse_args(argv)
    device = machine.by_device(args, ON_CPU, ON_CUDA)
    torch.backends.cudnn.benchmark = args.cudnn_benchmark
    side = run_config(args, "san", 2, "fp32", "eager").data.pixel_size
    domains = tuple(
        machine.random_domain(machine.random_pixels(args.images, side, seed), N_CLASSES, device)
        for seed in (0, 1)
    )
    rows = []
    for name in args.methods:
        for batch in args.batch:
            for precision in args.precisions:
                for mode in args.modes:
                    config = run_config(args, name, batch, precision, mode)
                    what = {"method": name, "backbone": args.backbone, "batch": batch}
                    what |= {"precision": precision, "mode": mode}
                    rows.append(what | measure(name, domains, config, args))
    columns = ("method", "batch", "precision", "mode", "images_per_step", "bare_images_per_second")
    machine.show(
        f"(a) bare and (b) full step, {args.backbone} at {args.image_size}²",
        rows,
        (*columns, "full_images_per_second", "full_over_bare"),
    )
    machine.write(args, "step", device, rows)


if __name__ == "__main__":
    main()
