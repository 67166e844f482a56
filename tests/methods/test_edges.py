"""Edge cases of every method: two classes, a batch of one class, equal images, tiny targets.

Features stand in for images where a method allows it: the edges are in heads, losses and memories.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.contract.runs import CASES
from tests.methods.toys import build
from unida.bench.entries import BenchEntry
from unida.config import from_mapping
from unida.methods import METHODS, Method
from unida.methods.base import DomainName
from unida.models.backbones import build_backbone, precomputed_features
from unida.types import Batch, Sizes
from unida.utils.rng import generator

STEPS = 6
WIDTH = 12

every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


class World:
    """Two domains of random images or features, and an extractor of them."""

    def __init__(self, method: Method, equal: bool = False, one_class: bool = False) -> None:
        draws, sizes = torch.Generator().manual_seed(2), method.sizes
        self.method, self.one_class = method, one_class
        self.source_labels = torch.arange(sizes.n_source) % sizes.n_classes
        shape = (WIDTH,) if method.backbone.is_precomputed else (3, 16, 16)
        self.images: dict[DomainName, Tensor] = {
            "source": torch.rand(sizes.n_source, *shape, generator=draws),
            "target": torch.rand(sizes.n_target, *shape, generator=draws),
        }
        if equal:
            self.images["target"][:] = self.images["target"][0].clone()

    def __call__(
        self,
        domain: DomainName,
        index: Tensor | None = None,
        through: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        images = self.images[domain] if index is None else self.images[domain][index]
        rows: Tensor = self.method.backbone(images)
        return through(rows) if through else rows

    def batch(self, step: int) -> Batch:
        method, b = self.method, self.method.sizes.batch
        source, target = (
            torch.randperm(len(self.images[domain]), generator=generator(0, domain, step))[:b]
            for domain in ("source", "target")
        )
        labels = self.source_labels[source]
        requested = method.extra(step, generator(0, "extra", step))
        return Batch(
            step=step,
            source_views=(self.images["source"][source],) * len(method.source_views),
            source_labels=torch.zeros_like(labels) if self.one_class else labels,
            source_index=source,
            target_views=(self.images["target"][target],) * len(method.target_views),
            target_index=target,
            extra={name: self.images[domain][index] for name, (domain, index) in requested.items()},
        )


def assert_finite_run(method: Method, world: World) -> None:
    """Train as the loop does; losses, gradients and outputs must be finite."""
    optimizer = torch.optim.SGD(method.parameters(), 0.01, momentum=0.9)
    for step in range(STEPS + 1):
        torch.manual_seed(step)
        if method.refresh_every and (step % method.refresh_every == 0 or step == STEPS):
            method.eval()
            with torch.no_grad():
                method.refresh(world, step)
        if step == STEPS:
            break
        method.train()
        batch = world.batch(step)
        terms = method.losses(batch)
        assert all(term.isfinite() for term in terms.values()), (step, terms)
        optimizer.zero_grad()
        torch.stack(list(terms.values())).sum().backward()
        grads = [p.grad for p in method.parameters() if p.grad is not None]
        assert all(grad.isfinite().all() for grad in grads)
        optimizer.step()
        with torch.no_grad():
            method.after_step(batch)
    method.eval()
    with torch.inference_mode():
        outputs = method.postprocess(method.predict(world.images["target"]))
    assert outputs.probs.isfinite().all()
    assert outputs.unknown_score.isfinite().all()


def make(case: BenchEntry, sizes: Sizes) -> Method:
    """A method on precomputed features; SPA needs the network's feature maps."""
    torch.manual_seed(0)
    cls = METHODS[case.method]
    config = from_mapping(cls.Config, dict(text.split("=") for text in case.settings), case.method)
    needs_maps = case.method == "spa"
    backbone = build_backbone("small_cnn", None) if needs_maps else precomputed_features(WIDTH)
    return cls(config, backbone, sizes)


@every
def test_two_classes_and_a_target_of_one_batch(case: BenchEntry) -> None:
    method = make(case, Sizes(2, 8, 4, 4, STEPS))
    assert_finite_run(method, World(method))


@every
def test_a_batch_of_one_class(case: BenchEntry) -> None:
    method = make(case, Sizes(3, 12, 12, 4, STEPS))
    assert_finite_run(method, World(method, one_class=True))


@every
def test_target_images_that_are_all_the_same(case: BenchEntry) -> None:
    """No cluster but one, every neighbour as near as any other, nothing to scale by."""
    method = make(case, Sizes(2, 8, 8, 4, STEPS))
    assert_finite_run(method, World(method, equal=True))


def test_features_of_the_backbone_may_replace_images() -> None:
    images = torch.rand(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    for name in METHODS:
        method = build(name).eval()
        with torch.inference_mode():
            expected, found = method.predict(images), method.predict(method.backbone(images))
        for field in ("probs", "unknown_score", "features"):
            assert getattr(found, field).equal(getattr(expected, field)), (name, field)
