"""The optimiser of a run: parameter groups and their learning rates."""

from typing import Any

import torch
from torch import Tensor

from unida.config import OptimConfig, RunConfig
from unida.methods import Method
from unida.methods.base import ParameterGroup
from unida.utils.schedule import lr_factor


def build_optimizer(method: Method, config: RunConfig) -> torch.optim.SGD:
    """Build SGD with a group for the backbone, unless it is frozen, and the method's own groups."""
    optim = config.optim
    optimizer = torch.optim.SGD(
        _groups(method, config),
        momentum=optim.momentum,
        nesterov=optim.momentum > 0,
        weight_decay=optim.weight_decay,
        fused=True,
    )
    if optim.momentum:
        # The fused kernel requires all or none, and some methods leave parameters without gradient.
        for group in optimizer.param_groups:
            for p in group["params"] if group["momentum"] else ():
                optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p)
    return optimizer


def _groups(method: Method, config: RunConfig) -> list[dict[str, Any]]:
    if config.model.frozen:
        method.backbone.requires_grad_(False)
    assert config.optim.backbone_lr is not None, "resolve_auto"
    network = list(method.backbone.parameters())
    backbone = ParameterGroup("backbone", network, config.optim.backbone_lr)
    parts = [*([] if config.model.frozen else [backbone]), *method.head_groups()]
    return [
        {
            "name": part.name,
            "params": part.parameters,
            "factor": part.lr,
            "lr": part.lr * config.optim.lr,
            **({} if part.momentum else {"momentum": 0.0, "nesterov": False}),
            **({} if part.weight_decay is None else {"weight_decay": part.weight_decay}),
        }
        for part in parts
    ]


def place_lr(optimizer: torch.optim.Optimizer, device: torch.device | None) -> None:
    """Keep learning rates as plain numbers, or on a device, where a recorded step reads them."""
    for group in optimizer.param_groups:
        group["lr"] = torch.zeros((), device=device) if device else 0.0


def learning_rate(config: OptimConfig, step: int) -> float:
    """Return the learning rate of the heads at a step."""
    return config.lr * lr_factor(config.schedule, step, config.steps)


def set_lr(optimizer: torch.optim.Optimizer, config: RunConfig, step: int) -> None:
    """Set the learning rates of a step."""
    for group in optimizer.param_groups:
        lr = group["factor"] * learning_rate(config.optim, step)
        group["lr"] = group["lr"].fill_(lr) if isinstance(group["lr"], Tensor) else lr
