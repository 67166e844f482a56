"""Source only: the check case of docs/methods/source_only.md, and that the target is never used."""

import math
from typing import Any

import torch
import torch.nn.functional as F

from tests.methods.toys import FixedOutput, build, noise, predicted_labels, train
from unida.types import Sizes

LOGITS = torch.tensor([[3.0, 0, 0], [0.5, 0, 0], [0, 2, 1.9]])


def with_logits(logits: torch.Tensor) -> Any:
    method = build("source_only", Sizes(logits.shape[1], 40, 24, 6, 8)).eval()
    method.classifier = FixedOutput(logits)
    return method


def test_the_decisions_of_the_check_case() -> None:
    outputs = with_logits(LOGITS).predict(torch.rand(3, 3, 16, 16))
    best = torch.tensor([0.909442999, 0.451862762, 0.490154583])
    torch.testing.assert_close(outputs.probs.amax(1), best)
    # The entropies of the check case carry ε = 1e−5, which shifts them by less than 3e-5.
    entropy = torch.tensor([0.366563963, 1.068415389, 0.890025902]) - math.log(3) / 2
    torch.testing.assert_close(outputs.unknown_score, entropy, atol=5e-5, rtol=0)
    assert predicted_labels(outputs) == [0, "unknown", "unknown"]


def test_the_loss_is_cross_entropy_on_the_source() -> None:
    method = build("source_only")
    batch = noise(method, 0)
    logits = method.classifier(method.backbone(batch.source_views[0]))
    terms = method.losses(batch)
    assert terms.keys() == {"ce"}
    assert terms["ce"].equal(F.cross_entropy(logits, batch.source_labels))
    check = F.cross_entropy(LOGITS, torch.tensor([0, 1, 2]))
    torch.testing.assert_close(check, torch.tensor(0.734111396))


def test_it_uses_no_target_and_every_parameter_learns() -> None:
    method = build("source_only")
    assert method.target_views == ()
    assert train(method) == {name for name, _ in method.named_parameters()}


def test_a_probability_of_one_is_handled() -> None:
    outputs = with_logits(torch.tensor([[1000.0, 0]])).predict(torch.rand(1, 3, 16, 16))
    assert predicted_labels(outputs) == [0]
