"""OVANet: decisions of docs/methods/ovanet.md, its heads, its settings."""

import pytest
import torch
import torch.nn.functional as F

from tests.methods.toys import build, noise, predicted_labels, train
from unida.config import from_mapping
from unida.errors import UserError
from unida.losses import one_vs_all, open_entropy
from unida.methods.ovanet import OVANetConfig
from unida.models.heads import ClosedAndOpen
from unida.types import Sizes

PAIRS = [
    [[0.2, -0.3, 0.5], [1.0, 0.0, -0.5]],
    [[0.1, 0.4, -0.2], [0.3, -0.6, 0.8]],
]
CLOSED = [[2.0, 0.0, 0.0], [0.0, 0.1, 0.0]]
IMAGES = torch.rand(2, 3, 16, 16)


def test_the_decisions_of_the_check_case() -> None:
    method = build("ovanet", Sizes(3, 40, 24, 6, 8))
    method.classifier.forward = lambda f: (torch.tensor(CLOSED), torch.tensor(PAIRS))
    outputs = method.eval().predict(IMAGES)
    p_not = outputs.unknown_score.sigmoid()
    torch.testing.assert_close(p_not, torch.tensor([0.310026, 0.731059]), atol=1e-6, rtol=0)
    assert predicted_labels(outputs) == [0, "unknown"]
    torch.testing.assert_close(outputs.probs, torch.tensor(CLOSED).softmax(1))


def test_the_pair_of_the_closed_winner_decides_whatever_the_other_pairs() -> None:
    g = torch.Generator().manual_seed(0)
    closed, pairs = torch.randn(200, 5, generator=g), torch.randn(200, 2, 5, generator=g)
    p_not = pairs.softmax(1)[:, 0]
    expected = [bool(p_not[i, closed[i].argmax()] > 0.5) for i in range(200)]
    assert (ClosedAndOpen.unknown_score(closed, pairs) >= 0).tolist() == expected
    assert 20 < sum(expected) < 180


def test_the_score_still_ranks_where_a_probability_would_be_one() -> None:
    pairs = torch.tensor([[[60.0, 0], [0, 0]], [[90.0, 0], [0, 0]]])
    closed = torch.tensor([[1.0, 0], [1, 0]])
    assert ClosedAndOpen.unknown_score(closed, pairs).tolist() == [60, 90]


def test_the_losses_are_the_paper_s() -> None:
    method = build("ovanet", lam=0.3)
    batch = noise(method, 0)
    with torch.no_grad():
        terms = method.losses(batch)
        source = method.backbone(batch.source_views[0])  # train mode: the batch's own statistics
        target = method.backbone(batch.target_views[0])
        rows = F.normalize(method.classifier.open.weight)
        pairs, target_pairs = ((f @ rows.T).view(-1, 2, 4) for f in (source, target))
        closed = source @ method.classifier.closed.weight.T
    expected = {
        "ce": F.cross_entropy(closed, batch.source_labels),
        "open": one_vs_all(pairs, batch.source_labels),
        "entropy": 0.3 * open_entropy(target_pairs),
    }
    assert terms.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(terms[name], value)


def test_rows_of_the_open_head_have_unit_length_before_and_after_training() -> None:
    method = build("ovanet")
    for _ in range(2):
        lengths = method.classifier.open.weight.norm(dim=1)
        torch.testing.assert_close(lengths, torch.ones(8))
        assert method.classifier.closed.weight.norm(dim=1).max() < 0.9
        reached = train(method)
    assert reached == {name for name, _ in method.named_parameters()}


def test_setting_rows_back_changes_no_output() -> None:
    head = ClosedAndOpen(6, 3)
    with torch.no_grad():
        head.open.weight.mul_(torch.rand(6, 1) + 0.1)
    x = torch.randn(4, 6)
    before = [out.detach() for out in head(x)]
    head.open.scale_rows()
    for a, b in zip(before, head(x), strict=True):
        torch.testing.assert_close(a, b)
    assert before[0].shape == (4, 3)
    assert before[1].shape == (4, 2, 3)


def test_two_classes_and_a_batch_of_one_class() -> None:
    method = build("ovanet", Sizes(2, 40, 24, 6, 8))
    assert train(method) == {name for name, _ in method.named_parameters()}
    batch = noise(method, 0)
    batch.source_labels.fill_(1)
    assert all(term.isfinite() for term in method.losses(batch).values())


def test_a_weight_of_zero_keeps_the_term_but_not_its_pull() -> None:
    method = build("ovanet", lam=0)
    terms = method.losses(noise(method, 0))
    assert terms["entropy"] == 0


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"lam": -0.1}, "lam is -0.1; allowed: from 0 to 1000."),
        ({"lam": "nan"}, "lam is nan; allowed: from 0 to 1000."),
        (
            {"lambda": 1},
            "setting of ovanet 'lambda' does not exist; did you mean 'lam'? Allowed: lam.",
        ),
    ],
)
def test_a_bad_setting_is_one_sentence(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError) as error:
        from_mapping(OVANetConfig, settings, "ovanet")
    assert str(error.value) == sentence
