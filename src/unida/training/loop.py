"""The only training loop."""

import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.state import AcceleratorState
from torch import Tensor

from unida.config import BatchNorm, OptimConfig, RunConfig
from unida.data.augmentations import EVAL_VIEW, WEAK_VIEW, View, make_view
from unida.data.domain import Domain
from unida.data.sampling import Balanced, Shuffled
from unida.errors import UserError
from unida.methods import Method
from unida.methods.base import DomainName
from unida.models.backbones.base import Backbone
from unida.training.run_folder import RunFolder
from unida.training.step import Numbers, make_step, use_cuda_graphs
from unida.types import Batch
from unida.utils import distributed
from unida.utils.chunking import RowBuffer
from unida.utils.devices import pick_dtype, send
from unida.utils.rng import derive_seed, generator, seed_device
from unida.utils.schedule import SCHEDULES

Report = Callable[[int, dict[str, Any] | None], None]
"""Called after every step with the number of steps done and, at a log point, the log line."""

CheckpointCallback = Callable[[int, Method], None]
"""Called at every checkpoint with the number of steps done; what it does leaves no trace."""


def train(
    method: Method,
    batches: "Batches",
    config: RunConfig,
    device: torch.device,
    run: RunFolder,
    report: Report,
    watch: CheckpointCallback | None = None,
) -> None:
    """Trains in place up to the last step, from the run's last checkpoint if there is one.

    Every draw of a step follows from seed and step, so a resumed run equals an uninterrupted one
    bit by bit on a CPU. Checkpoints are made only at log points, after the numbers were found
    finite.
    """
    config = resolve_auto(config, method.backbone)
    accelerator = _accelerator(device)
    method.to(device)
    if config.model.batch_norm == "stored":
        method.backbone.freeze_bn_stats()
    if device.type == "cuda":
        method.backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    distributed.convert_sync_batch_norm(method.backbone)
    optimizer = _optimizer(method, config)
    first = _restore(method, optimizer, run)
    graphs = use_cuda_graphs(config, method, device)
    _place_lr(optimizer, device if graphs else None)
    model, optimizer = accelerator.prepare(method, optimizer)
    dtype = pick_dtype(config.compute.precision, device)
    take_step = make_step(
        graphs, config.compute.compile, method, model, optimizer, accelerator, dtype
    )
    look = _Look(method, batches)
    tally = _Tally(first)
    model.train()
    for step in range(first, config.optim.steps):
        seed_device(device, derive_seed(config.optim.seed, "step", step))  # dropout and the like
        if method.refresh_every and step % method.refresh_every == 0:
            _refresh(method, look, step)
        _set_lr(optimizer, config, step)
        if not method.training:  # after a look; to say it to every layer takes a while
            model.train()
        tally.add(step, take_step(batches.at(step, method)))

        done = step + 1
        checkpoint = done % config.output.checkpoint_every == 0 or done == config.optim.steps
        line = None
        if checkpoint or done % config.output.log_every == 0:
            line = {
                "step": done,
                "lr": _lr(config.optim, step),
            } | tally.line()
            run.append_metrics(line)
        if checkpoint:
            parts = {"model": method.state_dict(), "optimizer": optimizer.state_dict()}
            run.save_state({"step": done, "sizes": asdict(method.sizes), **parts})
            if watch:
                _settle(method, look)
                watch(done, method)
        report(done, line)
    if method.refresh_every:
        _refresh(method, look, config.optim.steps)
    _settle(method, look)


class Batches:
    """The batch of every step: indices → pixels → views. The next pixels are fetched ahead."""

    def __init__(self, source: Domain, target: Domain, config: RunConfig) -> None:
        assert source.samples.labels is not None
        self.config = config
        self.domains: dict[DomainName, Domain] = {"source": source, "target": target}
        self.labels = torch.from_numpy(source.samples.labels)
        self.from_source = Balanced(source.samples.labels, config.optim.batch, config.optim.seed)
        self.from_target = Shuffled(len(target), config.optim.batch, config.optim.seed)
        self._pool = ThreadPoolExecutor(1)
        self._ahead: tuple[int, Future[_Fetched]] | None = None

    def at(self, step: int, method: Method) -> Batch:
        """The batch of a step, as this method wants to see it."""
        if self._ahead is None or self._ahead[0] != step:
            self._ahead = (step, self._pool.submit(self._fetch, step))
        source_index, source, target_index, target = self._ahead[1].result()
        if step + 1 < self.config.optim.steps:
            self._ahead = (step + 1, self._pool.submit(self._fetch, step + 1))
        wanted = method.extra(step, generator(self.config.optim.seed, "extra", step))
        extra = {
            name: self._views(name, (WEAK_VIEW,), self._share(domain, index), step, len(index))[0]
            for name, (domain, index) in wanted.items()
        }
        device = self.domains["source"].device
        return Batch(
            step=step,
            source_views=self._views("source", method.source_views, source, step),
            source_labels=send(self.labels[source_index], device),
            source_index=send(source_index, device),
            target_views=self._views("target", method.target_views, target, step),
            target_index=send(target_index, device),
            extra=extra,
        )

    def _fetch(self, step: int) -> "_Fetched":
        source, target = self.from_source.indices(step), self.from_target.indices(step)
        return source, self._share("source", source), target, self._share("target", target)

    def _share(self, domain: DomainName, index: Tensor) -> Tensor:
        """Pixels of this process's share of a batch."""
        return self.domains[domain].images(index[distributed.shard(len(index))])

    def _views(
        self,
        name: str,
        views: tuple[View, ...],
        images: Tensor,
        step: int,
        n: int | None = None,
    ) -> tuple[Tensor, ...]:
        """This process's share of a batch of n images, shown as the whole batch would be."""
        config, n = self.config, n or self.config.optim.batch
        return tuple(
            make_view(
                view.adjusted(config.data.flip, config.data.jitter),
                images,
                config.data.image_size,
                generator(config.optim.seed, "view", name, number, step),
                (distributed.shard(n).start, n),
            )
            for number, view in enumerate(views)
        )


_Fetched = tuple[Tensor, Tensor, Tensor, Tensor]  # numbers and pixels of source and target


class _Look:
    """See `unida.methods.base.Look`."""

    def __init__(self, method: Method, batches: Batches) -> None:
        self.backbone, self.domains = method.backbone, batches.domains
        self.image_size = batches.config.data.image_size
        self.source_labels = batches.labels.to(batches.domains["source"].device)

    def __call__(
        self,
        domain: DomainName,
        index: Tensor | None = None,
        through: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        images = self.domains[domain]
        index = torch.arange(len(images)) if index is None else index
        rows = RowBuffer(len(index))
        # Chunks are of nearly equal length, so that each has a share for every process.
        for chunk in index.tensor_split(math.ceil(len(index) / (128 * distributed.world_size()))):
            rows.add(self._see(images, chunk, through))
        return rows.all()

    def _see(
        self, images: Domain, index: Tensor, through: Callable[[Tensor], Tensor] | None
    ) -> Tensor:
        alone = (
            len(index) < distributed.world_size()
        )  # too few to share: every process looks at all of them
        mine = index if alone else index[distributed.shard(len(index))]
        view = make_view(EVAL_VIEW, images.images(mine), self.image_size, torch.Generator())
        features = self.backbone(view)
        part = through(features) if through else features
        return part if alone else distributed.gather(part)


def _refresh(method: Method, look: _Look, step: int) -> None:
    method.eval()
    with torch.no_grad():
        method.refresh(look, step)
        distributed.broadcast_buffers(method)


def _settle(method: Method, look: _Look) -> None:
    method.eval()
    with torch.no_grad():
        method.fit_target(look)
        distributed.broadcast_buffers(method)


class _Tally:
    """Means of losses since the last log point, kept on the device so that no step waits."""

    def __init__(self, first: int) -> None:
        self.last, self.since = first, time.perf_counter()
        self.sums: dict[str, Tensor] = {}
        self.first_bad: Tensor | None = None

    def add(self, step: int, numbers: Numbers) -> None:
        for name, value in numbers.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value.clone()
        bad = torch.where(torch.isfinite(numbers["loss"] + numbers["grad_norm"]), -1, step)
        self.first_bad = (
            bad if self.first_bad is None else torch.where(self.first_bad < 0, bad, self.first_bad)
        )
        self.step = step

    def line(self) -> dict[str, float]:
        """Ends the interval; raises if a loss or gradient in it was not finite."""
        assert self.first_bad is not None
        means = {name: value.item() for name, value in self.sums.items()}
        if (bad := int(self.first_bad)) >= 0:
            names = ", ".join(k for k, v in means.items() if not torch.isfinite(torch.tensor(v)))
            raise UserError(
                f"Training diverged at step {bad}: {names} not finite. Try a smaller --lr; "
                "the last checkpoint is whole."
            )
        count, now = self.step + 1 - self.last, time.perf_counter()
        rate = count / (now - self.since)
        self.last, self.since, self.sums, self.first_bad = self.step + 1, now, {}, None
        return {name: value / count for name, value in means.items()} | {"steps_per_second": rate}


def resolve_auto(config: RunConfig, backbone: Backbone) -> RunConfig:
    """Return the config with what it leaves to the backbone's weights decided."""
    norms: BatchNorm
    lr, norms = (0.03, "stored") if backbone.pretrained else (1.0, "batch")
    return config.replace(
        backbone_lr=lr if config.optim.backbone_lr is None else config.optim.backbone_lr,
        batch_norm=norms if config.model.batch_norm == "auto" else config.model.batch_norm,
    )


def resolve_run(config: RunConfig, method: Method, device: torch.device) -> RunConfig:
    """Return the config with every `auto` value as it is in force, for config.json."""
    dtype = pick_dtype(config.compute.precision, device)
    precision = config.compute.precision
    if precision == "auto":
        precision = "bf16" if dtype else "fp32"
    return resolve_auto(config, method.backbone).replace(
        settings=method.config,
        device=str(device),
        precision=precision,
        cuda_graphs="on" if use_cuda_graphs(config, method, device) else "off",
    )


def _groups(method: Method, config: RunConfig) -> list[dict[str, Any]]:
    if config.model.frozen:  # else a method may have set some of it to rest
        method.backbone.requires_grad_(False)
    assert config.optim.backbone_lr is not None, "settled"
    backbone = ("backbone", list(method.backbone.parameters()), config.optim.backbone_lr)
    parts = [] if config.model.frozen else [backbone]
    parts += [(group.name, group.parameters, group.lr) for group in method.head_groups()]
    return [
        {"name": name, "params": params, "factor": factor, "lr": factor * config.optim.lr}
        for name, params, factor in parts
    ]


def _optimizer(method: Method, config: RunConfig) -> torch.optim.SGD:
    optimizer = torch.optim.SGD(
        _groups(method, config),
        momentum=config.optim.momentum,
        nesterov=config.optim.momentum > 0,
        weight_decay=config.optim.weight_decay,
        fused=True,
    )
    if config.optim.momentum:
        # The fused kernel wants all or none to be there, and some methods let parameters rest.
        for group in optimizer.param_groups:
            for p in group["params"]:
                optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p)
    return optimizer


def _place_lr(optimizer: torch.optim.Optimizer, device: torch.device | None) -> None:
    """Learning rates are plain numbers, or lie on a device, where a recorded step reads them."""
    for group in optimizer.param_groups:
        group["lr"] = torch.zeros((), device=device) if device else 0.0


def _lr(config: OptimConfig, step: int) -> float:
    return config.lr * SCHEDULES[config.schedule](step / config.steps)


def _set_lr(optimizer: torch.optim.Optimizer, config: RunConfig, step: int) -> None:
    for group in optimizer.param_groups:
        lr = group["factor"] * _lr(config.optim, step)
        group["lr"] = group["lr"].fill_(lr) if isinstance(group["lr"], Tensor) else lr


def _restore(method: Method, optimizer: torch.optim.Optimizer, run: RunFolder) -> int:
    """Loads the last checkpoint, if any; returns the step to start with."""
    state = run.load_state()
    if state is None:
        return 0
    then, now = state.get("sizes", {}), asdict(method.sizes)
    moved = [f"{name} was {then[name]}, is {now[name]}" for name in then if then[name] != now[name]]
    if moved:
        raise UserError(
            f"The images are not those of the checkpoint ({', '.join(moved)}): bring them back, or "
            "begin a new run."
        )
    method.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def _accelerator(device: torch.device) -> Accelerator:
    if distributed.world_size() > 1:
        # Some methods leave parameters out of some steps; all keep their memories alike.
        alike = DistributedDataParallelKwargs(broadcast_buffers=False, find_unused_parameters=True)
        return Accelerator(cpu=device.type == "cpu", kwargs_handlers=[alike])
    # Accelerate keeps one state a process; a second run may be on another device.
    AcceleratorState._reset_state(reset_partial_state=True)
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)
    return Accelerator(cpu=device.type == "cpu")
