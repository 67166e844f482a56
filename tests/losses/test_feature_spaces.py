"""LEAD's loss on the spaces of features: docs/methods/lead.md, a slow copy, gradients."""

import math

import pytest
import torch

from unida.losses import space_separation

KNOWN = torch.tensor([0.6, 0.8, 1.0], dtype=torch.float64)
UNKNOWN = torch.tensor([0.8, 0.6, 0.0], dtype=torch.float64)
FLAGS = torch.tensor([True, False, False])
WEIGHTS = torch.tensor([1.0, 0.5, 1.0], dtype=torch.float64)


def test_the_check_case_and_a_slow_copy() -> None:
    found = space_separation(KNOWN, UNKNOWN, FLAGS, WEIGHTS).item()
    assert found == pytest.approx(0.403476344, abs=1e-9)
    slow = 0.0
    for k, u, flag, w in zip(*(x.tolist() for x in (KNOWN, UNKNOWN, FLAGS, WEIGHTS)), strict=True):
        chosen = math.exp(u if flag else k) / (math.exp(k) + math.exp(u))
        slow -= w * math.log(chosen + 1e-5) / 3
    assert found == pytest.approx(slow, abs=1e-12)


def test_the_gradient_moves_an_image_to_the_space_of_its_label() -> None:
    known, unknown = KNOWN.clone().requires_grad_(), UNKNOWN.clone().requires_grad_()
    space_separation(known, unknown, FLAGS, WEIGHTS).backward()
    assert known.grad is not None
    assert (known.grad > 0).tolist() == FLAGS.tolist()  # of unknown images it shrinks
    assert torch.autograd.gradcheck(
        lambda k, u: space_separation(k, u, FLAGS, WEIGHTS), (known, unknown)
    )
