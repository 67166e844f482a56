"""MLNet: docs/methods/mlnet.md, its warm-up, its memory and neighbourhoods, its decision."""

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.methods.toys import SIZES, build, noise, predicted_labels, train
from unida.losses import one_vs_all, open_entropy
from unida.types import Sizes

LONG = Sizes(n_classes=4, n_source=40, n_target=24, batch=6, steps=50)


def features(domain: str) -> torch.Tensor:
    assert domain == "target"
    return torch.rand(24, 128, generator=torch.Generator().manual_seed(3))


def ready(step: int, **settings: Any) -> Any:
    method = build("mlnet", LONG, **({"warmup": 5} | settings))
    with torch.no_grad():
        method.eval().refresh(features, 0)
        if step:
            method.refresh(features, step)
    return method.train()


def test_the_losses_are_ovanets_and_three_more() -> None:
    method = build("mlnet", entropy=0.4)
    batch = noise(method, 0)
    with torch.no_grad():
        found = method.losses(batch)
        f = method.backbone(batch.source_views[0]), method.backbone(batch.target_views[0])
        pairs = [method.pairs(x).view(6, 2, 4) for x in f]
    assert found.keys() == {"ce", "open", "entropy", "mix", "cc", "ni"}
    labels = batch.source_labels
    torch.testing.assert_close(found["ce"], F.cross_entropy(method.closed(f[0]), labels))
    torch.testing.assert_close(found["open"], one_vs_all(pairs[0], labels))
    torch.testing.assert_close(found["entropy"], 0.4 * open_entropy(pairs[1]))
    assert found["ni"] == 0


def test_neighbours_come_together_from_the_warm_up_on() -> None:
    method = ready(5)
    early, late = (method.losses(dataclasses.replace(noise(method, 0), step=s)) for s in (4, 5))
    assert early["ni"] == 0 < late["ni"]
    late["ni"].backward()
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in method.backbone.parameters())
    assert method.closed.weight.grad is None


@pytest.mark.parametrize(("steps", "expected"), [(10_000, 200), (50, 10), (1, 1)])
def test_the_warm_up_is_a_fifth_of_a_short_run(steps: int, expected: int) -> None:
    method = build("mlnet", dataclasses.replace(SIZES, steps=steps))
    assert method.warmup == method.refresh_every == expected


def test_the_memory_has_unit_features_and_each_step_those_of_its_images() -> None:
    method = ready(0)
    torch.testing.assert_close(method.memory.rows, F.normalize(features("target")))
    batch = noise(method, 0)
    method.losses(batch)
    method.after_step(batch)
    with torch.no_grad():
        seen = F.normalize(method.backbone(batch.target_views[0]))
    others = [i for i in range(24) if i not in batch.target_index.tolist()]
    torch.testing.assert_close(method.memory.rows[batch.target_index], seen, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(method.memory.rows[others], F.normalize(features("target"))[others])


def test_an_image_is_no_neighbour_of_itself_and_neighbourhoods_are_bounded() -> None:
    method = ready(5, most=7, share=0.5)
    assert method.neighbours.shape == (24, 7)
    assert not (method.neighbours == torch.arange(24)[:, None]).any()
    assert build("mlnet", most=1000).neighbours.shape == (24, 23)


def test_the_pair_of_the_closed_winner_decides() -> None:
    method = build("mlnet", Sizes(3, 40, 24, 6, 8)).eval()
    closed = torch.tensor([[2.0, 0, 0], [0, 0.1, 0]])
    pairs = torch.tensor([[[0.2, -0.3, 0.5], [1, 0, -0.5]], [[0.1, 0.4, -0.2], [0.3, -0.6, 0.8]]])
    method._logits = lambda f: (closed, pairs)
    outputs = method.predict(torch.rand(2, 3, 16, 16))
    assert predicted_labels(outputs) == [0, "unknown"]


def test_every_parameter_learns() -> None:
    method = build("mlnet")
    assert train(method) == {name for name, _ in method.named_parameters()}
