"""The training loop, the only one."""

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.state import AcceleratorState
from torch import Tensor

from unida.config import BatchNorm, RunConfig
from unida.data.fingerprint import Fingerprint
from unida.errors import UserError
from unida.legacy import migrate_checkpoint
from unida.methods import Method
from unida.models.backbones.base import Backbone
from unida.training.batches import Batches
from unida.training.extractor import DomainFeatures, evaluation_mode
from unida.training.optimizer import build_optimizer, learning_rate, place_lr, set_lr
from unida.training.run_folder import RunFolder
from unida.training.step import Numbers, make_step, use_cuda_graphs
from unida.utils import distributed
from unida.utils.devices import pick_dtype
from unida.utils.logs import logger
from unida.utils.rng import derive_seed, seed_device

History = list[dict[str, Any]]
"""The lines of metrics.jsonl."""

StepCallback = Callable[[int, dict[str, Any] | None], None]
"""Called after every step with the number of steps done and, at a log point, the log line."""

CheckpointCallback = Callable[[int, Method], None]
"""Called at every checkpoint with the number of steps done; it must not change the method."""


def train(
    method: Method,
    batches: Batches,
    config: RunConfig,
    device: torch.device,
    run: RunFolder,
    on_step: StepCallback,
    on_checkpoint: CheckpointCallback | None = None,
    images: Fingerprint | None = None,
) -> History:
    """Train in place up to the last step, from the run's last checkpoint if there is one.

    Every random number of a step follows from seed and step, so a resumed run equals an
    uninterrupted one bit by bit on a CPU. Checkpoints are written only at log points, after the
    losses were found finite.

    Args:
        method: to be trained; afterwards in evaluation mode.
        batches: of its domains.
        config: resolved (`resolve_run`).
        device: where it computes.
        run: folder of metrics and checkpoints.
        on_step: called after every step.
        on_checkpoint: called at every checkpoint.
        images: stored with every checkpoint; one of other images is refused.
    """
    accelerator = _accelerator(device)
    method.to(device)
    if config.model.batch_norm == "stored":
        method.backbone.freeze_bn_stats()
    if device.type == "cuda":
        method.backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    distributed.convert_sync_batch_norm(method.backbone)
    optimizer = build_optimizer(method, config)
    first, history = _restore(method, optimizer, run, images)
    graphs = use_cuda_graphs(config, method, device)
    place_lr(optimizer, device if graphs else None)
    model, optimizer = accelerator.prepare(method, optimizer)
    dtype = pick_dtype(config.compute.precision, device)
    take_step = make_step(
        graphs, config.compute.compile, method, model, optimizer, accelerator, dtype
    )
    features, running = DomainFeatures(method, batches), _RunningMeans(first)
    model.train()
    for step in range(first, config.optim.steps):
        seed_device(device, derive_seed(config.optim.seed, "step", step))  # dropout
        if method.refresh_every and step % method.refresh_every == 0:
            with evaluation_mode(method):
                method.refresh(features, step)
        set_lr(optimizer, config, step)
        if not method.training:  # only after a refresh: setting the mode takes a while
            model.train()
        running.add(step, take_step(batches.at(step, method)))

        done = step + 1
        checkpoint = done % config.output.checkpoint_every == 0 or done == config.optim.steps
        line = None
        if checkpoint or done % config.output.log_every == 0:
            line = {"step": done, "lr": learning_rate(config.optim, step)} | running.pop()
            history.append(line)
            run.append_metrics(line)
        if checkpoint:
            parts = {"model": method.state_dict(), "optimizer": optimizer.state_dict()}
            found = {"sizes": asdict(method.sizes), "images": images}
            run.save_state({"step": done, **found, **parts})
            if on_checkpoint:
                with evaluation_mode(method):
                    on_checkpoint(done, method)
        on_step(done, line)
    if method.refresh_every:
        with evaluation_mode(method):
            method.refresh(features, config.optim.steps)
    return history


class _RunningMeans:
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

    def pop(self) -> dict[str, float]:
        """Return the means and start anew; raise if a loss or gradient was not finite."""
        assert self.first_bad is not None
        sums = {name: value.item() for name, value in self.sums.items()}
        if (bad := int(self.first_bad)) >= 0:
            names = ", ".join(k for k, v in sums.items() if not torch.isfinite(torch.tensor(v)))
            raise UserError(
                f"Training diverged at step {bad}: {names} not finite. Try a smaller --lr; "
                "the last checkpoint is whole."
            )
        count, now = self.step + 1 - self.last, time.perf_counter()
        rate = count / (now - self.since)
        self.last, self.since, self.sums, self.first_bad = self.step + 1, now, {}, None
        return {name: value / count for name, value in sums.items()} | {"steps_per_second": rate}


def resolve_run(config: RunConfig, method: Method, device: torch.device) -> RunConfig:
    """Return the config with every `auto` value as it is in force, for config.json."""
    precision = config.compute.precision
    if precision == "auto":
        precision = "bf16" if pick_dtype("auto", device) else "fp32"
    return resolve_auto(config, method.backbone).replace(
        settings=method.config,
        device=str(device),
        precision=precision,
        cuda_graphs="on" if use_cuda_graphs(config, method, device) else "off",
    )


def resolve_auto(config: RunConfig, backbone: Backbone) -> RunConfig:
    """Return the config with what follows from the backbone's weights."""
    norms: BatchNorm
    lr, norms = (0.03, "stored") if backbone.pretrained else (1.0, "batch")
    return config.replace(
        backbone_lr=lr if config.optim.backbone_lr is None else config.optim.backbone_lr,
        batch_norm=norms if config.model.batch_norm == "auto" else config.model.batch_norm,
    )


def _restore(
    method: Method, optimizer: torch.optim.Optimizer, run: RunFolder, images: Fingerprint | None
) -> tuple[int, History]:
    """Load the last checkpoint, if any; return the step to start with and the log lines so far."""
    state, history = run.load_state()
    if state is None:
        return 0, []
    then, now = state.get("sizes", {}), asdict(method.sizes)
    changed = [f"{k} was {then[k]}, is {now[k]}" for k in then if then[k] != now[k]]
    if images and not state.get("images"):
        logger.info("%s is of an earlier version: its images are not compared.", run.state)
    elif images and not changed:
        changed = [f"other {name}" for name, one in images.items() if state["images"][name] != one]
    if changed:
        raise UserError(
            f"The images are not those of the checkpoint ({', '.join(changed)}): bring them back, "
            "or begin a new run."
        )
    method.load_state_dict(migrate_checkpoint(state["model"]))
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"]), history


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
