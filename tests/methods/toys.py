"""A method on a small network, batches of noise, and a few training steps."""

from typing import Any

import torch
from torch import Tensor, nn

from unida.config import from_mapping
from unida.decision.rejection import TargetOutputs, own
from unida.methods import METHODS, Method
from unida.models.backbones import build_backbone
from unida.types import Batch, Outputs, Sizes

SIZES = Sizes(n_classes=4, n_source=40, n_target=24, batch=6, steps=8)


def build(name: str, sizes: Sizes = SIZES, **settings: Any) -> Any:
    """A method by name with random weights; any, so that tests reach its parts."""
    torch.manual_seed(0)
    cls = METHODS[name]
    return cls(from_mapping(cls.Config, settings, name), build_backbone("small_cnn", None), sizes)


def noise(method: Method, step: int) -> Batch:
    """A batch as the loop would make it, with noise for images."""
    draws = torch.Generator().manual_seed(step)
    b, sizes = method.sizes.batch, method.sizes

    def views(n: int) -> tuple[Tensor, ...]:
        return tuple(torch.rand(b, 3, 16, 16, generator=draws) for _ in range(n))

    return Batch(
        step=step,
        source_views=views(len(method.source_views)),
        source_labels=torch.randint(sizes.n_classes, (b,), generator=draws),
        source_index=torch.randint(sizes.n_source, (b,), generator=draws),
        target_views=views(len(method.target_views)),
        target_index=torch.randperm(sizes.n_target, generator=draws)[:b],
    )


def train(method: Method, steps: int = 3, lr: float = 0.01) -> set[str]:
    """A few steps as the loop makes them; losses must be finite.

    Returns:
        The names of the parameters that a gradient reached.
    """
    optimizer = torch.optim.SGD(method.parameters(), lr, momentum=0.9)
    reached: set[str] = set()
    method.train()
    for step in range(steps):
        batch = noise(method, step)
        terms = method.losses(batch)
        assert all(term.ndim == 0 and term.isfinite() for term in terms.values()), terms
        optimizer.zero_grad()
        torch.stack(list(terms.values())).sum().backward()
        for name, parameter in method.named_parameters():
            if parameter.grad is not None and parameter.grad.abs().sum() > 0:
                assert parameter.grad.isfinite().all(), name
                reached.add(name)
        optimizer.step()
        with torch.no_grad():
            method.after_step(batch)
    return reached


def predicted_labels(outputs: Outputs) -> list[int | str]:
    """Predicted label of each image by the method's own rule."""
    scores = outputs.unknown_score.double().numpy()
    unknown = own(TargetOutputs(scores)).is_unknown(scores)
    best = outputs.probs.argmax(1).tolist()
    return ["unknown" if u else k for u, k in zip(unknown, best, strict=True)]


class FixedOutput(nn.Module):
    """Replaces a part of a method; its output does not depend on the input."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output

    def forward(self, x: Tensor) -> Any:
        return self.output
