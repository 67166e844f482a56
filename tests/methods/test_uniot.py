"""UniOT: docs/methods/uniot.md, its queue, class masses, predictions on a whole set, settings."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from tests.methods.toys import SIZES, build, noise, predicted_labels, train
from tests.tasks import Task
from unida.decision.predictor import Predictor
from unida.errors import UserError
from unida.model import Model
from unida.ops.sinkhorn import pseudo_labels, sinkhorn, unbalanced_sinkhorn
from unida.pipeline import run_adaptation
from unida.types import Batch, Outputs, Sizes


def extract(n: int = 24, width: int = 128) -> Any:
    features = torch.randn(n, width, generator=torch.Generator().manual_seed(7))

    def show(domain: str, index: Tensor) -> Tensor:
        assert domain == "target"
        return features[index]

    return show


def ready(**settings: Any) -> Any:
    method = build("uniot", **({"K": 5, "warm_up": 0, "width": 8} | settings))
    with torch.no_grad():
        method.refresh(extract(), 0)
    return method


# --- losses


def slow_pcd(method: Any, v: Tensor, index: list[int], fill: Tensor) -> Tensor:
    """Image by image, from docs/methods/uniot.md."""
    rows = F.normalize(method.target_prototypes.weight)
    known = set(index)
    neighbours = []
    for i in range(len(v)):
        others = [v[j] for j in range(len(v)) if j != i]
        queue = zip(method.queue, method.queue_index.tolist(), strict=True)
        others += [row for row, number in queue if number not in known]
        neighbours.append(max(others, key=lambda row, i=i: (row @ v[i]).item()))
    u = torch.stack(neighbours)
    cosines = torch.cat([v, u, fill]) @ rows.T
    q = sinkhorn(cosines)
    log_p = (cosines / method.config.tau).log_softmax(1)
    total = torch.zeros(())
    b = len(v)
    for i in range(b):
        on_u, on_v = -(q[i] * log_p[b + i]).sum(), -(q[b + i] * log_p[i]).sum()
        on_self = -(q[i] * log_p[i]).sum()
        total = total + (on_self + (on_u + on_v) / 2) / 2 / b
    return total


def test_private_class_discovery_is_the_paper_s_with_its_gradient() -> None:
    method = ready()
    batch = noise(method, 0)
    v = F.normalize(torch.randn(6, 8)).requires_grad_()
    torch.manual_seed(3)
    fast = method._pcd(v, batch)
    torch.manual_seed(3)
    fill = method.queue[torch.randint(len(method.queue), (5,))]
    slow = slow_pcd(method, v, batch.target_index.tolist(), fill)
    torch.testing.assert_close(fast, slow)
    inputs = (v, method.target_prototypes.weight)
    for a, b in zip(
        torch.autograd.grad(fast, inputs), torch.autograd.grad(slow, inputs), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_a_neighbour_in_the_batch_feels_the_gradient_and_one_in_the_queue_does_not() -> None:
    method = ready()
    v = F.normalize(torch.eye(6, 8) + 0.1 * torch.eye(6, 8).roll(1, 0)).requires_grad_()
    method.queue.copy_(F.normalize(-torch.ones(24, 8)))
    u = method._neighbours(v, torch.arange(6))
    assert torch.autograd.grad(u.sum(), v)[0].abs().sum() > 0
    method.queue[:6] = v.detach()
    method.queue_index.copy_(torch.arange(100, 124))  # other images
    u = method._neighbours(v, torch.arange(6))
    torch.testing.assert_close(u, v)
    assert torch.autograd.grad(u.sum(), v)[0].abs().sum() == 0


def test_an_earlier_view_of_any_image_of_the_batch_is_no_neighbour() -> None:
    method = ready()
    v = F.normalize(torch.randn(6, 8))
    method.queue[:6] = v
    method.queue_index.fill_(99)
    method.queue_index[:6] = torch.arange(6)
    u = method._neighbours(v, torch.arange(6))
    assert not (u == v).all(1).any()
    method.queue_index.fill_(0)  # nothing left in the queue: the batch has neighbours still
    u = method._neighbours(v, torch.arange(6))
    cosines = (v @ v.T).fill_diagonal_(-2)
    torch.testing.assert_close(u, v[cosines.argmax(1)])


def test_common_class_detection_is_cross_entropy_on_what_the_plan_keeps() -> None:
    method = ready(gamma=0.2)
    rows = F.normalize(method.source_prototypes.weight).detach()
    v = F.normalize(torch.cat([rows, -rows[:2]])).requires_grad_()
    torch.manual_seed(5)
    found = method._ccd(v)
    torch.manual_seed(5)
    fill = method.queue[torch.randint(24, (24,))]
    plan = method._plan(torch.cat([v.detach(), fill]), torch.rand(30), 1e-4)
    label, _, kept = pseudo_labels(plan)
    assert 0 < kept[:6].sum() < 6
    logits = v @ rows.T / 0.1
    expected = [-logits[i].log_softmax(0)[label[i]] for i in range(6) if kept[i]]
    torch.testing.assert_close(found, torch.stack(expected).mean())
    torch.testing.assert_close(method._pending[1], plan.sum(0))
    gradient = torch.autograd.grad(found, v)[0]
    assert gradient.isfinite().all()
    assert gradient[~kept[:6]].abs().sum() == 0  # plans and labels are constants


def test_a_batch_without_a_common_class_has_a_loss_of_zero() -> None:
    method = ready()
    rows = method.source_prototypes.weight.detach()
    method.queue.copy_(F.normalize(rows[:1]).expand(24, -1))
    v = F.normalize(-rows.sum(0, keepdim=True)).expand(6, -1).clone().requires_grad_()
    loss = method._ccd(v)
    assert loss.item() == 0
    assert torch.autograd.grad(loss, v)[0].abs().sum() == 0


def test_the_total_weighs_both_target_losses_and_waits_with_the_second() -> None:
    sizes = Sizes(4, 40, 24, 6, 20)
    method = build("uniot", sizes, K=5, warm_up=2, lam=0.3)
    with torch.no_grad():
        method.refresh(extract(), 0)
        for step, waits in ((2, True), (3, False)):
            batch = noise(method, step)
            torch.manual_seed(0)
            terms = method.losses(batch)
            v = F.normalize(method.projection(method.backbone(batch.target_views[0])))
            s = F.normalize(method.projection(method.backbone(batch.source_views[0])))
            torch.manual_seed(0)
            pcd, ccd = method._pcd(v, batch), 0 * v.sum() if waits else method._ccd(v)
            rows = F.normalize(method.source_prototypes.weight)
            ce = F.cross_entropy(s @ rows.T / 0.1, batch.source_labels)
            assert list(terms) == ["ce", "pcd", "ccd"]
            torch.testing.assert_close(
                torch.stack(list(terms.values())), torch.stack([ce, 0.3 * pcd, 0.3 * ccd])
            )


def test_the_warm_up_is_a_fifth_of_a_short_run() -> None:
    for steps, expected in [(20, 4), (600, 100), (10_000, 100), (1, 0)]:
        assert build("uniot", Sizes(4, 40, 24, 6, steps)).warm_up == expected


def test_every_parameter_learns_and_prototypes_keep_unit_length() -> None:
    method = ready()
    assert train(method) == {name for name, _ in method.named_parameters()}
    for prototypes in (method.source_prototypes, method.target_prototypes):
        torch.testing.assert_close(
            prototypes.weight.norm(dim=1), torch.ones(len(prototypes.weight))
        )


def test_two_classes_a_batch_of_one_class_and_a_target_of_one_batch() -> None:
    method = build("uniot", Sizes(2, 8, 6, 6, 8), K=2, warm_up=0)
    with torch.no_grad():
        method.refresh(extract(6), 0)
    assert method.queue.shape == (6, 256)
    assert train(method, steps=4) == {name for name, _ in method.named_parameters()}
    batch = noise(method, 5)
    one = Batch(**(vars(batch) | {"source_labels": torch.zeros(6, dtype=torch.long)}))
    assert all(term.isfinite() for term in method.losses(one).values())


# --- state


def test_the_queue_starts_full_of_different_target_images() -> None:
    method = ready()
    assert method.refresh_every == SIZES.steps + 1
    features = F.normalize(method.projection(extract()("target", torch.arange(24)))).detach()
    assert sorted(method.queue_index.tolist()) == list(range(24))
    torch.testing.assert_close(method.queue, features[method.queue_index])


def test_only_the_images_of_the_queue_are_embedded() -> None:
    method = build("uniot", queue=12, width=8)
    recorded: list[Tensor] = []

    def show(domain: str, index: Tensor) -> Tensor:
        recorded.append(index)
        return extract()(domain, index)

    with torch.no_grad():
        method.refresh(show, 0)
    assert [len(index) for index in recorded] == [12]
    assert method.queue_index.equal(recorded[0])
    assert len(set(recorded[0].tolist())) == 12


def test_the_queue_is_filled_once() -> None:
    method = ready()
    before = method.queue.clone()
    method.refresh(None, SIZES.steps)  # what the loop calls after the last step
    torch.testing.assert_close(method.queue, before)


def test_the_queue_holds_whole_batches() -> None:
    for queue, rows in [(None, 24), (4000, 24), (23, 18), (12, 12), (1, 6)]:
        assert build("uniot", queue=queue).queue.shape == (rows, 256)


def test_the_queue_forgets_the_oldest_first() -> None:
    method = ready(queue=12)
    for step in range(4):
        batch = noise(method, step)
        v = torch.full((6, 8), float(step))
        method._pending = v, method.beta
        method.after_step(batch)
        first = 6 * (step % 2)
        assert (method.queue[first : first + 6] == step).all()
        assert method.queue_index[first : first + 6].tolist() == batch.target_index.tolist()
    assert {*method.queue[:, 0].tolist()} == {2.0, 3.0}


def test_class_masses_move_by_mu() -> None:
    for mu, expected in [(0.7, [0.295, 0.235]), (1.0, [0.25, 0.25])]:
        method = ready(mu=mu)
        assert method.beta.tolist() == [0.25] * 4
        masses = torch.tensor([0.4, 0.2, 0.2, 0.2])
        method._pending = torch.zeros(6, 8), masses
        method.after_step(noise(method, 0))
        assert method.beta[:2].tolist() == pytest.approx(expected)
        assert method.beta.sum().item() == pytest.approx(1)
        assert {"beta", "queue", "queue_index"} <= method.state_dict().keys()


def test_statistics_are_applied_once_or_as_released() -> None:
    images = torch.rand(4, 3, 16, 16)
    once, twice = (build("uniot", normalise_twice=flag).eval() for flag in (False, True))
    shifted = (images - once.backbone.mean) / once.backbone.std
    torch.testing.assert_close(twice.predict(images).features, once.predict(shifted).features)
    embedded = once.backbone(images)  # which has been normalised
    same = (method.predict(embedded).features for method in (once, twice))
    torch.testing.assert_close(*same)


# --- predictions


def outputs_of(method: Any, cosines: list[list[float]]) -> Outputs:
    """Features whose cosines with unit prototypes e_1, e_2, … are as given."""
    rows = torch.tensor(cosines)
    rest = (1 - rows.square().sum(1, keepdim=True)).clamp_min(0).sqrt()
    features = torch.cat([rows, rest], 1)
    k = rows.shape[1]
    method.source_prototypes.weight = torch.nn.Parameter(torch.eye(k, k + 1))
    method.beta = torch.full((k,), 1 / k)
    return Outputs(torch.full((len(rows), k), 1 / k), torch.zeros(len(rows)), features)


def test_the_decisions_of_the_check_case() -> None:
    method = build("uniot", Sizes(2, 8, 8, 4, 8))
    # Two of four extract known, so nothing is filled in and the plan is the check case's.
    outputs = outputs_of(method, [[0.9, 0.1], [0.2, 0.8], [0.3, 0.35], [0.1, -0.2]])
    decided = method.postprocess(outputs)
    assert predicted_labels(decided) == [0, 1, "unknown", "unknown"]
    q = torch.tensor([0.417726, 0.350289, 0.144608, 0.087025])
    torch.testing.assert_close(decided.unknown_score, -(4 * q).log(), rtol=0, atol=1e-4)
    torch.testing.assert_close(decided.probs.sum(1), torch.ones(4))
    assert decided.features is outputs.features


def test_the_rows_of_the_filling_count_but_get_no_prediction() -> None:
    method = build("uniot", Sizes(2, 8, 8, 4, 8))
    outputs = outputs_of(method, [[0.9, 0.1], [0.1, 0.95], [0.8, 0.3], [0.2, 0.85], [0.1, 0.1]])
    decided = method.postprocess(outputs)
    assert predicted_labels(decided) == [0, 1, 0, 1, "unknown"]
    plan = method._plan(outputs.features, torch.rand(5), 1e-6)
    assert len(plan) == 5 + 3
    assert len(decided.probs) == 5


def test_predictions_repeat_whatever_was_drawn_before() -> None:
    method = ready().eval()
    with torch.inference_mode():
        outputs = method.predict(torch.rand(40, 3, 16, 16))
        first = method.postprocess(outputs)
        torch.rand(17)
        second = method.postprocess(outputs)
    assert torch.equal(first.unknown_score, second.unknown_score)
    assert torch.equal(first.probs, second.probs)


def test_the_score_ranks_by_what_the_plan_gives() -> None:
    method = build("uniot", Sizes(2, 8, 8, 4, 8))
    near = torch.linspace(0.95, 0.46, 10).tolist()  # half above γ: no filling
    cosines = [[c, 0.0] for c in near] + [[0.0, c] for c in near]
    scores = method.postprocess(outputs_of(method, cosines)).unknown_score.tolist()
    assert scores[:10] == sorted(scores[:10])
    assert scores[:10] == pytest.approx(scores[10:], abs=1e-3)
    assert scores[0] < 0 < scores[9]


def test_one_image_or_two_are_handled() -> None:
    for n in [1, 2]:
        method = ready().eval()
        with torch.inference_mode():
            decided = method.postprocess(method.predict(torch.rand(n, 3, 16, 16)))
        assert decided.unknown_score.isfinite().all()
        assert decided.probs.isfinite().all()


def test_equal_images_are_handled() -> None:
    method = ready().eval()
    with torch.inference_mode():
        decided = method.postprocess(method.predict(torch.zeros(9, 3, 16, 16)))
    assert decided.unknown_score.isfinite().all()


def test_the_provisional_score_is_the_cosine_short_of_gamma() -> None:
    method = ready().eval()
    with torch.inference_mode():
        outputs = method.predict(torch.rand(5, 3, 16, 16))
        cosines = outputs.features @ F.normalize(method.source_prototypes.weight).T
    torch.testing.assert_close(outputs.unknown_score, 0.7 - cosines.amax(1))
    torch.testing.assert_close(outputs.probs, (cosines / 0.1).softmax(1))


def test_a_prediction_takes_hundreds_of_rounds_not_a_thousand() -> None:
    features = F.normalize(torch.randn(1000, 16, generator=torch.Generator().manual_seed(0)))
    prototypes = F.normalize(torch.randn(10, 16, generator=torch.Generator().manual_seed(1)))
    cosines, beta = features @ prototypes.T, torch.full((10,), 0.1)
    plan = unbalanced_sinkhorn(cosines, beta, stop=1e-6)
    assert torch.equal(plan, unbalanced_sinkhorn(cosines, beta, stop=1e-6, rounds=500))


def test_it_is_declared_transductive() -> None:
    assert build("uniot").about.transductive


def test_one_image_is_refused_before_it_is_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = torch.device("cpu")
    model = Model(Predictor(ready()).eval(), "uniot", ("a", "b", "c", "d"), 16, 18, {}, "own", cpu)
    bad = tmp_path / "bad.png"
    bad.write_text("no image")
    image = Image.new("RGB", (20, 20))
    assert len(model.score([image, image])[0]) == 2
    monkeypatch.setattr("unida.model.predict_batches", pytest.fail)
    with pytest.raises(UserError, match="transductive"):
        model.score(image)
    with pytest.raises(UserError, match="transductive"):
        model.score([image, bad], skipped=[])


def test_held_out_images_calibrate_no_scores_of_a_set(digits: Task, out: Path) -> None:
    config = digits.config(out, method="uniot", steps=2, holdout=0.2, reject="source")
    model = run_adaptation(config)
    assert model.known == ()
    assert model.rule().note.startswith("there are no scores of held-out source images")
