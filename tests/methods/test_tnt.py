"""TNT: docs/methods/tnt.md, its thresholds and memories, its switches, its settings."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.methods.toys import SIZES, FixedOutput, build, noise, predicted_labels, train
from unida.losses import evidential, evidential_kl, multi_sample_contrast
from unida.ops.uncertainty import dirichlet
from unida.types import Batch, Sizes

LOGITS = [[2.0, 0, -1], [0, 0, 0]]


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def with_delta(method: Any, delta: list[float]) -> Any:
    method.u_mean, method.u_count = tensor(delta), torch.ones(len(delta))
    return method


def after(method: Any, alpha: Tensor, labels: list[int]) -> None:
    """One step's end in which the source had these Dirichlets."""
    b, width = len(labels), method.config.width
    z = torch.nn.functional.normalize(torch.ones(b, width))
    numbers = torch.arange(b)
    method._pending = (z, z, alpha)
    method.after_step(Batch(0, (), torch.tensor(labels), numbers, (), numbers))


# --- predictions


def test_the_decisions_on_the_check_case_of_methods() -> None:
    method = build("tnt", Sizes(3, 4, 4, 2, 8)).double()
    method.backbone, method.neck = nn.Identity(), nn.Identity()
    method.head = FixedOutput(tensor(LOGITS))  # u is 0.489 and 0.591, class 0 wins both
    outputs = with_delta(method, [0.5, 0.9, 0.9]).predict(torch.zeros(2, 3))
    assert predicted_labels(outputs) == [0, "unknown"]
    expected = [0.489130152 - 0.5, 0.590616109 - 0.5]
    assert outputs.unknown_score.tolist() == pytest.approx(expected, abs=1e-9)
    assert predicted_labels(with_delta(method, [0.6, 0, 0]).predict(torch.zeros(2, 3))) == [0, 0]
    assert (
        predicted_labels(with_delta(method, [0.4, 1, 1]).predict(torch.zeros(2, 3)))
        == ["unknown"] * 2
    )
    torch.testing.assert_close(outputs.probs.sum(1), torch.ones(2).double())


def test_a_class_never_yet_right_rejects_only_what_has_no_evidence() -> None:
    method = build("tnt", Sizes(2, 4, 4, 2, 8), evidence="relu").double()
    method.backbone, method.neck = nn.Identity(), nn.Identity()
    method.head = FixedOutput(tensor([[0.1, -1], [-1.0, -2]]))
    assert predicted_labels(method.predict(torch.zeros(2, 3))) == [0, "unknown"]


# --- the losses


def test_the_losses_of_the_check_case_of_methods() -> None:
    method = build("tnt", Sizes(3, 4, 4, 2, 10), width=3).double()
    method.backbone, method.neck = nn.Identity(), nn.Identity()
    method.head = FixedOutput(tensor(LOGITS))
    with_delta(method, [0.5, 0.7, 0.9])
    labels, numbers = torch.tensor([0, 2]), torch.arange(2)
    views = (tensor([[1.0, 0, 0], [0, 1, 0]]),)
    batch = Batch(5, views, labels, numbers, views, numbers)
    terms = method.losses(batch)
    assert terms["edl"].item() == pytest.approx((0.758297610 + 1.320449956) / 2, abs=1e-9)
    assert terms["kl"].item() == pytest.approx((0.140663935 + 0.194664402) / 2, abs=1e-9)
    # Both are predicted class 0; m is 5 % of the range of δ, less than the first one's 0.0109.
    gaps = (0.5 - 0.489130152, 0.590616109 - 0.5)
    m = 0.05 * 0.4
    assert terms["uc"].item() == pytest.approx(-0.1 * (max(gaps[0], m) + gaps[1]) / 2, abs=1e-9)
    assert terms["mnn"].item() == 0  # no row has been visited yet


def test_kappa_rises_over_the_first_part_of_the_run() -> None:
    for step, kappa in [(0, 0.0), (1, 0.25), (4, 1.0), (15, 1.0)]:
        method = build("tnt", replace(SIZES, steps=16), anneal=0.25)
        batch = noise(method, step)
        found = method.losses(batch)["kl"]
        alpha = method._pending[2]
        expected = kappa * evidential_kl(alpha, batch.source_labels)
        torch.testing.assert_close(found.detach(), expected)


def test_the_contrast_is_with_mutual_neighbours_of_both_memories() -> None:
    """The six points of docs/methods/tnt.md, all of them in the memories, k = 1."""
    method = build("tnt", Sizes(3, 3, 3, 3, 8), width=2, k=1, tau=0.1, lam1=1.0).double()
    method.backbone, method.neck = nn.Identity(), nn.Identity()
    source = nn.functional.normalize(tensor([[1.0, 0], [0.9, 0.2], [0, 1]]))
    target = nn.functional.normalize(tensor([[1.0, 0.1], [0.1, 1], [-1, 0.2]]))
    method.source.rows, method.target.rows = source, target
    numbers = torch.arange(3)
    found = method.losses(Batch(0, (source,), numbers, numbers, (target,), numbers))["mnn"]
    points, everyone = torch.cat([source, target]), torch.arange(6)
    positive = torch.zeros(6, 6, dtype=torch.bool)
    for i, j in ((0, 3), (2, 4), (0, 1), (3, 4)):  # two across, one within each domain
        positive[i, j] = positive[j, i] = True
    candidates = (points, everyone.expand(6, 6), positive, everyone)
    expected = multi_sample_contrast(points, [candidates], 0.1)
    torch.testing.assert_close(found, expected)


def test_without_thresholds_nothing_is_pushed_from_them() -> None:
    method = build("tnt")
    assert method.losses(noise(method, 0))["uc"].item() == 0
    assert method.delta().tolist() == [1.0] * 4


def test_the_switches_reach_the_loss() -> None:
    for evidence, form in product(["softplus", "exp", "relu"], ["digamma", "log", "squared"]):
        method = build("tnt", evidence=evidence, form=form)
        batch = noise(method, 0)
        found = method.losses(batch)["edl"]
        logits = method.head(method.neck(method.backbone(batch.source_views[0])))
        alpha = dirichlet(logits, evidence)  # type: ignore[arg-type]
        expected = evidential(alpha, batch.source_labels, form)  # type: ignore[arg-type]
        torch.testing.assert_close(found, expected)


def test_every_switch_trains() -> None:
    for settings in [
        {},
        {"evidence": "exp", "form": "log"},
        {"evidence": "relu", "form": "squared", "positives": "mean_of_logs"},
        {"lam1": 0.0, "lam2": 0.0},
        {"k": 24, "tau": 0.005},
        {"memory": 0.0, "ema": 0.0, "margin": 0.0, "anneal": 1.0, "width": 3},
    ]:
        method = build("tnt", **settings)
        assert train(method, 3) == {name for name, _ in method.named_parameters()}


def test_small_sets_train() -> None:
    for sizes in [Sizes(2, 2, 2, 2, 3), Sizes(7, 9, 5, 3, 4)]:
        train(build("tnt", sizes), 4)


def test_one_class_in_a_batch_trains() -> None:
    method = build("tnt")
    batch = replace(noise(method, 0), source_labels=torch.full((6,), 2))
    for _ in range(3):
        terms = method.losses(batch)
        assert all(term.isfinite() for term in terms.values())
        method.after_step(batch)


# --- thresholds


def slow_delta(steps: list[list[float]], ema: float) -> float:
    """The weighted mean of all step means, then the same of squared deviations as they were."""
    mean = variance = 0.0
    for count, us in enumerate(steps, 1):
        rate = (1 - ema) / (1 - ema**count)
        mean += rate * (math.fsum(us) / len(us) - mean)
        variance += rate * (math.fsum((u - mean) ** 2 for u in us) / len(us) - variance)
    return mean + math.sqrt(variance)


def test_thresholds_follow_the_correct_source_images() -> None:
    method = build("tnt", Sizes(2, 8, 8, 4, 8), ema=0.9).double()
    method.source.float(), method.target.float()
    for e in (1.0, 3.0, 8.0):  # uncertainties 2 / (e + 2) and 2 / (2e + 2)
        alpha = tensor([[1 + e, 1], [1 + 2 * e, 1], [1 + e, 1], [1 + e, 1]])
        after(method, alpha, [0, 0, 1, 1])  # the last two are wrong
    expected = slow_delta([[2 / (e + 2), 2 / (2 * e + 2)] for e in (1.0, 3.0, 8.0)], 0.9)
    assert method.delta().tolist() == pytest.approx([expected, 1.0], rel=1e-6)
    assert method.u_count.tolist() == [3, 0]


def test_a_class_with_one_image_has_no_deviation() -> None:
    method = build("tnt", Sizes(2, 8, 8, 4, 8))
    for _ in range(30):
        after(method, torch.tensor([[3.0, 1], [2, 4]]), [0, 1])
    assert method.delta().tolist() == pytest.approx([2 / 4, 2 / 6], rel=1e-5)
    assert method.u_variance.tolist() == pytest.approx([0, 0], abs=1e-9)


def test_early_steps_do_not_outweigh_later_ones() -> None:
    method = build("tnt", Sizes(2, 8, 8, 4, 8))
    for e in (0.5, 10.0):
        after(method, torch.tensor([[1 + e, 1.0]]), [0])
    mean = (0.99 * 2 / 2.5 + 2 / 12) / 1.99
    assert method.u_mean[0].item() == pytest.approx(mean, rel=1e-5)


# --- memories


def test_memories_hold_the_rows_of_past_batches_only() -> None:
    method = build("tnt")
    batch = noise(method, 0)
    method.losses(batch)
    z_s, z_t, _ = method._pending
    method.after_step(batch)
    recorded = torch.zeros(40, dtype=torch.bool)
    recorded[batch.source_index] = True
    assert (method.source.rows.norm(dim=1) > 0).equal(recorded)
    unit = nn.functional.normalize(z_t)
    torch.testing.assert_close(method.target.rows[batch.target_index], unit)
    assert z_s.shape == (6, 256)


def test_a_seldom_visited_row_forgets_faster() -> None:
    for steps, batch, n, momentum in [
        (10_000, 36, 2000, 0.9),
        (600, 48, 4000, 0.0),
        (600, 48, 1437, 0.501042),
        (20, 8, 64, 0.0),
    ]:
        method = build("tnt", Sizes(4, n, n, batch, steps))
        assert method._momentum(n) == pytest.approx(momentum, abs=1e-6)
        assert build("tnt", Sizes(4, n, n, batch, steps), memory=0.2)._momentum(n) <= 0.2


def test_the_state_is_in_buffers_of_fixed_shape() -> None:
    method, other = build("tnt"), build("tnt")
    shapes = {name: value.shape for name, value in method.state_dict().items()}
    train(method, 3)
    assert {name: value.shape for name, value in method.state_dict().items()} == shapes
    other.load_state_dict(method.state_dict())
    images = torch.rand(5, 3, 16, 16)
    found, expected = other.eval().predict(images), method.eval().predict(images)
    assert found.unknown_score.equal(expected.unknown_score)
    assert other.delta().equal(method.delta())


# --- settings


def test_it_is_declared_a_reconstruction() -> None:
    method = build("tnt")
    assert method.about.spec == "reconstruction"
    assert not method.about.transductive
    module = __import__(type(method).__module__, fromlist=["x"])
    assert "reconstruction" in module.__doc__
