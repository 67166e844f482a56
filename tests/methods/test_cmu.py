"""CMU: docs/methods/cmu.md, its phases, what it remembers of the target, its settings."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import unida.methods.cmu
from tests.methods.toys import FixedOutput, build, noise, predicted_labels
from unida.methods.cmu import HEAD_VIEWS
from unida.types import Batch, Sizes

A = [[0.7, 0.2, 0.1], [0.8, 0.1, 0.1], [0.6, 0.3, 0.1], [0.9, 0.05, 0.05], [0.7, 0.1, 0.2]]
B = [[0.34, 0.33, 0.33], [0.3, 0.4, 0.3], [0.4, 0.3, 0.3], [0.2, 0.5, 0.3], [0.5, 0.25, 0.25]]
SIZES = Sizes(n_classes=4, n_source=40, n_target=24, batch=6, steps=12)
PRETRAINING, HEADS, ADVERSARIAL = 0, 5, 6  # steps of each phase, with SIZES and one epoch


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def made(**settings: Any) -> Any:
    return build("cmu", SIZES, epochs=1, **settings).train()


def extract(features: Tensor) -> Callable[..., Tensor]:
    return lambda domain, through: through(features if domain == "target" else torch.empty(0))


# --- the phases


def active(method: Any, step: int) -> set[str]:
    terms = method.losses(noise(method, step))
    assert terms.keys() == {"ce", "ensemble", "adversarial"}
    assert all(term.isfinite() for term in terms.values())
    return {name for name, term in terms.items() if term != 0}


def test_the_schedule_is_the_released_one_with_a_last_turn_of_the_heads() -> None:
    method = build("cmu", Sizes(4, 40, 24, 2, 31_500)).train()
    assert method.refresh_every == 1500
    for step in (0, 999):
        assert active(method, step) == {"ce", "ensemble"}
    for step in (1000, 1499, 2500, 2999, 31_499):
        assert active(method, step) == {"ensemble"}
    for step in (1500, 2499, 3000, 30_999):
        assert active(method, step) == {"ce", "adversarial"}


def test_the_heads_have_the_last_turn_in_a_run_of_any_length() -> None:
    method = build("cmu", Sizes(4, 40, 24, 2, 600)).train()
    assert (method.refresh_every, method.head_steps) == (29, 9)
    assert active(method, 590) == {"ce", "adversarial"}
    assert active(method, 591) == active(method, 599) == {"ensemble"}


def test_every_run_has_room_for_the_phases() -> None:
    for steps in [1, 3, 5, 20, 600]:
        method = build("cmu", Sizes(4, 40, 24, 2, steps))
        assert 1 <= method.head_steps < method.refresh_every
        assert method.refresh_every * 21 >= steps


def test_the_reversal_rises_as_in_the_released_code(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[float] = []
    monkeypatch.setattr(
        unida.methods.cmu, "reverse_gradient", lambda x, strength: recorded.append(strength) or x
    )
    method = build("cmu", Sizes(4, 40, 24, 2, 31_500)).train()
    for step in (1500, 3000, 9000):  # after 0, 1,000 and 5,000 adversarial steps
        method.losses(noise(method, step))
    assert recorded == pytest.approx([0, 0.462117157, 0.986614298], abs=1e-9)


def reached(method: Any, step: int) -> set[str]:
    method.zero_grad()
    torch.stack(list(method.losses(noise(method, step)).values())).sum().backward()
    return {n for n, p in method.named_parameters() if p.grad is not None}


def test_each_phase_trains_the_parts_it_should() -> None:
    """A part without gradient, rather than a zero one, is left alone by momentum and decay."""

    def parts(step: int) -> set[str]:
        return {name.partition(".")[0] for name in reached(method, step)}

    method = made()
    assert parts(PRETRAINING) == {"backbone", "bottleneck", "heads", "classifier"}
    assert parts(HEADS) == {"heads"}
    assert parts(ADVERSARIAL) == {"backbone", "bottleneck", "classifier", "discriminator"}
    released = made(released_pretraining=True)
    assert {n for n in reached(released, PRETRAINING) if "heads" in n or "classifier" in n} == {
        f"heads.{i}.{part}" for i in (0, 1, 2) for part in ("weight", "bias")
    }
    assert reached(released, HEADS) == {
        f"heads.{i}.{part}" for i in range(5) for part in ("weight", "bias")
    }


def test_the_heads_learn_on_the_features_of_a_test() -> None:
    method = made()
    batch = noise(method, HEADS)
    before = {name: value.clone() for name, value in method.named_buffers()}
    loss = method.losses(batch)["ensemble"]
    for name, value in method.named_buffers():
        assert torch.equal(value, before[name]), name
    method.eval()
    expected = sum(
        F.cross_entropy(head(method.bottleneck(method.backbone(view))), batch.source_labels)
        for head, view in zip(method.heads, batch.source_views[1:], strict=True)
    )
    torch.testing.assert_close(loss, expected)


def test_every_head_has_its_own_view_and_its_own_start() -> None:
    method = made()
    assert len(method.source_views) == 6
    assert len(set(HEAD_VIEWS)) == 5
    assert len(method.target_views) == 1
    spreads = [head.weight.std().item() for head in method.heads]
    assert len({round(s, 4) for s in spreads}) == 5
    wide = build("cmu", Sizes(300, 40, 24, 6, 12))
    stds = [
        math.sqrt(1 / (3 * 256)),
        2 / math.sqrt(556),
        math.sqrt(2 / 556),
        *[1 / math.sqrt(128)] * 2,
    ]
    assert [h.weight.std().item() for h in wide.heads] == pytest.approx(stds, rel=0.02)


# --- the adversarial phase, by docs/methods/cmu.md


def as_logits(*images: list[list[float]]) -> list[FixedOutput]:
    return [FixedOutput(tensor(head).log()) for head in zip(*images, strict=True)]


def test_the_adversarial_loss_weighs_source_by_class_and_target_by_certainty() -> None:
    method = build("cmu", Sizes(3, 40, 24, 2, 12), epochs=1, lam=0.6)
    method.backbone, method.bottleneck = nn.Identity(), nn.Identity()
    method.heads = nn.ModuleList(as_logits(A, B))
    method.classifier = FixedOutput(torch.zeros(2, 3))
    method.class_weight.copy_(torch.tensor([1.0, 0.25, 0]))
    d_s, d_t = tensor([0.7, 0.6]), tensor([0.3, 0.5])
    method.discriminator = FixedOutput(torch.cat([d_s, d_t]).logit())
    labels = torch.tensor([0, 1])
    views = (torch.zeros(2, 3),)
    terms = method.losses(Batch(ADVERSARIAL, views * 6, labels, labels, views, labels))
    on_source = -(1 * math.log(0.7) + 0.25 * math.log(0.6)) / 2
    on_target = -(0.668954005 * math.log(0.7) + 0.458519693 * math.log(0.5)) / 2
    expected = 0.6 * (on_source + on_target) / 2
    assert terms["adversarial"].item() == pytest.approx(expected, abs=1e-9)
    assert terms["ce"].item() == pytest.approx(math.log(3))


def test_the_discriminator_has_both_domains_in_one_batch() -> None:
    method, recorded = made(), []
    method.discriminator.register_forward_hook(
        lambda net, args, out: recorded.append(args[0].shape)
    )
    method.losses(noise(method, ADVERSARIAL))
    assert recorded == [(12, 256)]


# --- what is remembered of the target


def slow_scores(method: Any, features: Tensor) -> list[float]:
    """Scaled over these images, as the released code does at test."""
    heads = torch.stack([head(features).softmax(1) for head in method.heads]).double()
    c = heads.amax(2).mean(0)
    e = -(heads * (heads + 1e-10).log()).sum(2).mean(0) / math.log(heads.shape[2])
    s = heads.std(0).mean(1)
    c, e, s = ((x - x.min()) / (x.max() - x.min()) for x in (c, e, s))
    return ((c + 1 - e + 1 - s) / 3).tolist()


@torch.no_grad()
def test_scores_are_those_scaled_over_the_target_and_do_not_depend_on_the_batch() -> None:
    method = made()
    images = torch.rand(24, 3, 16, 16)
    method.eval()
    features = method.backbone(images)
    method.refresh(extract(features), 12)
    outputs = method.predict(images)
    scores = slow_scores(method, method.bottleneck(features))
    assert (0.5 - outputs.unknown_score).tolist() == pytest.approx(scores, abs=1e-4)
    alone = method.predict(images[:1])
    assert alone.unknown_score.item() == pytest.approx(outputs.unknown_score[0].item(), abs=1e-4)
    best = outputs.probs.argmax(1).tolist()
    expected = ["unknown" if s <= 0.5 else k for s, k in zip(scores, best, strict=True)]
    assert predicted_labels(outputs) == expected
    assert 0 < expected.count("unknown") < 24


@torch.no_grad()
def test_class_weights_are_of_the_target_images_taken_for_known() -> None:
    method = made().eval()
    features = torch.randn(24, 128)
    method.refresh(extract(features), 0)
    g = method.bottleneck(features)
    known = torch.tensor(slow_scores(method, g)) >= 0.5
    mean = method.classifier(g).softmax(1)[known].mean(0)
    v = (mean - mean.min()) / (mean.max() - mean.min())
    torch.testing.assert_close(method.class_weight, v, atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_target_of_equal_images_is_handled() -> None:
    method = made(w0=0.9).eval()
    method.refresh(extract(torch.ones(5, 128)), 0)
    assert method.class_weight.tolist() == [1, 1, 1, 1]
    assert method.predict(torch.rand(3, 3, 16, 16)).unknown_score.isfinite().all()


def test_tllib_s_confidence_has_two_measures() -> None:
    method = made(confidence="margin").eval()
    assert method.least.shape == (2,)
    method.refresh(extract(torch.randn(24, 128)), 0)
    assert method.predict(torch.rand(3, 3, 16, 16)).unknown_score.shape == (3,)
    method.train()
    assert active(method, ADVERSARIAL) == {"ce", "adversarial"}


def test_one_class_in_a_batch_and_two_classes_at_all_are_handled() -> None:
    method = build("cmu", Sizes(2, 40, 24, 6, 12), epochs=1).train()
    method.class_weight.copy_(torch.tensor([0.0, 1]))
    for step in (PRETRAINING, HEADS, ADVERSARIAL):
        batch = noise(method, step)
        batch.source_labels.zero_()
        assert all(term.isfinite() for term in method.losses(batch).values())


# --- settings
