"""GLC: docs/methods/glc.md, two separate stages, its banks, its settings."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.methods.toys import FixedOutput, build, noise, predicted_labels
from unida.losses import soft_cross_entropy
from unida.ops import chunked
from unida.ops.knn import knn_probs
from unida.ops.pseudo_labels import one_vs_all_labels, soft_targets
from unida.types import Batch, Sizes
from unida.utils.schedule import inverse_decay

SIZES = Sizes(n_classes=4, n_source=40, n_target=24, batch=6, steps=16)  # epochs of 4 steps
BEGIN = 8


class Untouchable:
    """Stands for the source where it must not be used."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"the source was touched: {name}")

    def __getitem__(self, key: object) -> Any:
        raise AssertionError("the source was touched")


def extract(domain: str, through: Callable[[Tensor], Tensor] = lambda rows: rows) -> Tensor:
    assert domain == "target", "the source was used"
    return through(torch.randn(24, 128, generator=torch.Generator().manual_seed(7)))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spares the search of C_t, which takes seconds, where a test is about something else."""
    monkeypatch.setattr("unida.methods.glc.estimate_class_ratio", lambda *_: 1.0)


def without_source(batch: Batch) -> Batch:
    nothing: Any = Untouchable()
    return dataclasses.replace(
        batch, source_views=nothing, source_labels=nothing, source_index=nothing
    )


def made(sizes: Sizes = SIZES, **settings: Any) -> Any:
    return build("glc", sizes, **({"width": 8} | settings))


def refreshed(method: Any, step: int = BEGIN) -> Any:
    torch.manual_seed(step)
    with torch.no_grad():
        method.eval().refresh(extract, step)
    return method.train()


def do_steps(method: Any, steps: range, blind: bool = False) -> list[set[str]]:
    """Steps as the loop makes them; the parameters that a gradient reached in each."""
    optimizer = torch.optim.SGD(method.parameters(), 0.01, momentum=0.9, weight_decay=0.1)
    reached = []
    for step in steps:
        if step % method.refresh_every == 0:
            refreshed(method, step)
        batch = noise(method, step)
        terms = method.losses(without_source(batch) if blind else batch)
        assert all(term.ndim == 0 and term.isfinite() for term in terms.values())
        optimizer.zero_grad()
        torch.stack(list(terms.values())).sum().backward()
        reached.append(
            {n for n, p in method.named_parameters() if p.grad is not None and p.grad.abs().sum()}
        )
        optimizer.step()
        with torch.no_grad():
            method.after_step(batch)
    return reached


# --- two stages


def test_the_second_stage_begins_with_an_epoch() -> None:
    for n_target, batch, steps, share, every, begin in [
        (1437, 48, 600, 0.5, 29, 290),
        (4000, 48, 600, 0.5, 83, 249),
        (80, 8, 20, 0.5, 10, 10),
        (80, 8, 5, 0.5, 2, 2),
        (55_000, 36, 2000, 0.5, 1000, 1000),  # an epoch is longer than the first stage
        (55_000, 36, 2000, 0.9, 1527, 1527),
        (24, 6, 1, 0.5, 1, 1),  # too short for a second stage
        (6, 6, 9, 0.1, 1, 1),
    ]:
        method = made(Sizes(4, 100, n_target, batch, steps), source_share=share)
        assert (method.refresh_every, method.begin) == (every, begin)
        assert begin % every == 0


def test_the_second_stage_learns_at_the_paper_s_rate() -> None:
    sizes = Sizes(4, 100, 1440, 48, 600)  # epochs of 30 steps
    method = made(sizes)
    assert method.begin == 300
    for step in (300, 450, 599):
        loop, paper = inverse_decay(step / 600), inverse_decay((step - 300) / 300)
        assert method._lr_factor(step) * loop == pytest.approx(0.1 * paper)
    constant = made(dataclasses.replace(sizes, schedule="constant"))
    assert constant._lr_factor(450) == pytest.approx(0.1)


def test_the_first_stage_is_smoothed_cross_entropy_on_the_source() -> None:
    method = made()
    batch = noise(method, 3)
    terms = method.losses(batch)
    log_p = method.classifier(method.neck(method.backbone(batch.source_views[0]))).log_softmax(1)
    smoothed = 0.9 * F.one_hot(batch.source_labels, 4) + 0.1 / 4
    torch.testing.assert_close(terms["ce"], -(smoothed * log_p).sum(1).mean())
    assert list(terms) == ["ce", "psd", "knn"]
    assert terms["psd"] == terms["knn"] == 0


def test_the_first_stage_does_not_use_the_target() -> None:
    method = made()
    nothing: Any = Untouchable()
    batch = dataclasses.replace(noise(method, 3), target_views=nothing, target_index=nothing)
    method.losses(batch)
    method.after_step(batch)
    method.refresh(nothing, 0)


@pytest.mark.usefixtures("quick")
def test_the_second_stage_does_not_touch_the_source() -> None:
    method = made()
    do_steps(method, range(BEGIN))
    do_steps(method, range(BEGIN, 16), blind=True)


def test_a_share_of_one_is_the_first_stage_alone() -> None:
    for steps in (1, 3, 16, 600):
        assert made(Sizes(4, 40, 24, 6, steps), source_share=1.0).begin == steps


@pytest.mark.parametrize("name", ["glc", "lead"])
def test_from_a_source_model_the_second_stage_is_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step by step, for the same batches and without what momentum is left of the first stage."""
    monkeypatch.setattr(f"unida.methods.{name}.estimate_class_ratio", lambda *_: 1.0)
    sizes = dataclasses.replace(SIZES, schedule="constant")
    whole = build(name, sizes, width=8)
    do_steps(whole, range(BEGIN))
    free = build(name, dataclasses.replace(sizes, n_source=0, steps=8), width=8)
    free.start_from(whole)
    free.backbone.load_state_dict(whole.backbone.state_dict())
    assert (free.begin, free.refresh_every) == (0, whole.refresh_every)
    optimizers = [torch.optim.SGD(m.parameters(), 0.01, momentum=0.9) for m in (whole, free)]
    for step in range(8):
        losses = []
        for method, optimizer, number in zip(
            (whole, free), optimizers, (BEGIN + step, step), strict=True
        ):
            if number % method.refresh_every == 0:
                torch.manual_seed(step)
                with torch.no_grad():
                    method.eval().refresh(extract, number)
                method.train()
            batch = dataclasses.replace(noise(whole, step), step=number)
            terms = method.losses(without_source(batch))
            optimizer.zero_grad()
            torch.stack(list(terms.values())).sum().backward()
            optimizer.step()
            with torch.no_grad():
                method.after_step(batch)
            losses.append({name: term.item() for name, term in terms.items()})
        assert losses[0] == losses[1]
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, free.state_dict()[name]), name


@pytest.mark.usefixtures("quick")
def test_every_parameter_learns_first_and_the_classifier_is_frozen_then() -> None:
    method = made()
    everything = {name for name, _ in method.named_parameters()}
    for reached in do_steps(method, range(BEGIN)):
        assert reached == everything
    before = {n: p.detach().clone() for n, p in method.named_parameters()}
    for reached in do_steps(method, range(BEGIN, 16)):
        assert reached == {name for name in everything if not name.startswith("classifier")}
    for name, parameter in method.named_parameters():
        # Neither gradient nor weight decay moves it.
        assert torch.equal(parameter, before[name]) == name.startswith("classifier"), name


@pytest.mark.usefixtures("quick")
def test_the_classifier_stays_frozen_though_momentum_is_left_from_the_first_stage() -> None:
    method = made()
    rows = []
    # One optimiser for both stages, as the loop has it.
    optimizer = torch.optim.SGD(method.parameters(), 0.01, momentum=0.9, weight_decay=0.1)
    for step in range(12):
        if step % method.refresh_every == 0:
            refreshed(method, step)
        batch = noise(method, step)
        optimizer.zero_grad()
        torch.stack(list(method.losses(batch).values())).sum().backward()
        optimizer.step()
        with torch.no_grad():
            method.after_step(batch)
        rows.append(method.classifier.weight.detach().clone())
    assert not torch.equal(rows[BEGIN - 2], rows[BEGIN - 1])
    assert all(torch.equal(row, rows[BEGIN - 1]) for row in rows[BEGIN:])


# --- the second stage's losses


@pytest.mark.usefixtures("quick")
def test_the_losses_are_the_papers() -> None:
    method = refreshed(made(lambda_psd=0.3, lambda_knn=0.7, k=3, target_lr=0.5))
    batch = noise(method, 12)
    pace = 0.5 * (8.5 / 6) ** 0.75  # three quarters of the run, half of the stage
    with torch.no_grad():
        terms = method.losses(batch)
        e = method.neck(method.backbone(batch.target_views[0]))
        p = method.classifier(e).softmax(1)
    y_hat = soft_targets(method.labels[batch.target_index], 4)
    q_bar = knn_probs(F.normalize(e), method.bank.rows, method.bank_probs, 3)
    expected = {
        "ce": torch.zeros(()),
        "psd": pace * 0.3 * soft_cross_entropy(p, y_hat),
        "knn": pace * 0.7 * soft_cross_entropy(p, q_bar),
    }
    assert terms.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(terms[name], value)


@pytest.mark.usefixtures("quick")
def test_neighbours_are_found_before_the_banks_move() -> None:
    method = refreshed(made())
    batch = noise(method, BEGIN)
    bank, probs = method.bank.rows.clone(), method.bank_probs.clone()
    method.losses(batch)
    assert torch.equal(method.bank.rows, bank)
    assert torch.equal(method.bank_probs, probs)
    with torch.no_grad():
        e = method.neck(method.backbone(batch.target_views[0]))
        p = method.classifier(e).softmax(1)
        method.after_step(batch)
    torch.testing.assert_close(method.bank.rows[batch.target_index], F.normalize(e))
    torch.testing.assert_close(method.bank_probs[batch.target_index], p)
    others = torch.ones(24, dtype=torch.bool)
    others[batch.target_index] = False
    assert torch.equal(method.bank.rows[others], bank[others])
    assert torch.equal(method.bank_probs[others], probs[others])


# --- refresh


def test_banks_and_labels_are_those_of_the_target_shown_plainly() -> None:
    method = refreshed(made())
    method.eval()
    with torch.no_grad():
        e = method.neck(extract("target"))
        p = method.classifier(e).softmax(1)
    torch.testing.assert_close(method.bank.rows, F.normalize(e))
    torch.testing.assert_close(method.bank_probs, p)
    expected = one_vs_all_labels(
        method.bank.rows, method.bank_probs, method.coefficient.item(), 0.75
    )
    assert torch.equal(method.labels, expected)
    assert method.coefficient.item() in (0.25, 0.5, 1.0, 2.0, 3.0)


@pytest.mark.usefixtures("quick")
def test_banks_filled_in_chunks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = refreshed(made()).state_dict()
    monkeypatch.setattr(chunked, "MAX_ENTRIES", 40)  # five rows of eight numbers
    for name, value in refreshed(made()).state_dict().items():
        torch.testing.assert_close(value, whole[name])


def test_the_number_of_classes_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[int] = []

    def search(features: Tensor, n_classes: int) -> float:
        recorded.append(len(features))
        return 2.0

    monkeypatch.setattr("unida.methods.glc.estimate_class_ratio", search)
    method = made(search=10)
    for step in (0, 4, 8, 12, 16):
        refreshed(method, step)
    assert recorded == [10]
    assert method.coefficient.item() == 2.0


def test_nothing_is_refreshed_in_the_first_stage_or_after_the_last_step() -> None:
    method = made()
    before = {k: v.clone() for k, v in method.state_dict().items()}
    for step in (0, 4, 16):
        refreshed(method, step)
    for name, value in method.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_everything_the_second_stage_needs_is_stored() -> None:
    names = made().state_dict().keys()
    assert {"bank.rows", "bank_probs", "labels", "coefficient"} <= names


@pytest.mark.usefixtures("quick")
def test_two_classes_and_a_target_of_one_batch() -> None:
    def small(domain: str, through: Callable[[Tensor], Tensor]) -> Tensor:
        return extract(domain, through)[:6]

    method = made(Sizes(2, 8, 6, 6, 4))
    assert (method.refresh_every, method.begin) == (1, 2)
    with torch.no_grad():
        method.eval().refresh(small, 2)
    method.train()
    assert all(term.isfinite() for term in method.losses(noise(method, 2)).values())


# --- predictions


def test_the_decisions_are_by_normalised_entropy() -> None:
    method = made(Sizes(3, 40, 24, 6, 16)).eval()
    method.classifier = FixedOutput(
        torch.tensor([[2.0, 0, 0], [0, 0, 0], [0, 3, 0], [0, 0, 200], [2.3, 0, 0]])
    )
    outputs = method.predict(torch.rand(5, 3, 16, 16))
    entropies = (outputs.unknown_score + 0.55).tolist()
    assert entropies[:2] == pytest.approx([0.605803057, 0.999972693], abs=1e-6)
    assert predicted_labels(outputs) == ["unknown", "unknown", 1, 2, 0]
    assert outputs.features.shape == (5, 8)
