"""Target prototypes of models that version 0.1 stored."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from unida.decision.prototypes import TargetPrototypes

ROWS = F.normalize(torch.tensor([[3.0, 1, 0], [1, 3, 0], [1, 0, 3]]))
VALUES = torch.tensor([[0.5, 0.2, 0.2, 0.6], [-0.5, 0.8, 0.1, 0.1], [0.1, 0.3, 0.3, 0.4]])


def stored(present: list[bool]) -> TargetPrototypes:
    """Prototypes along the three axes, those that are present."""
    prototypes = TargetPrototypes(3, 3)
    directions = torch.eye(3) * torch.tensor(present)[:, None]
    tensors = {"directions": directions, "present": torch.tensor(present)}
    prototypes.load_state_dict(tensors | {"shift": torch.tensor(0.4)})
    return prototypes


def unknown_score(similarity: float) -> Tensor:
    return torch.tensor(0.4 - similarity)


def test_the_nearest_prototype_is_the_class_and_its_similarity_the_score() -> None:
    found = stored([True, True, True]).score(ROWS, VALUES)
    assert found[:, 1:].argmax(1).tolist() == [0, 1, 2]
    nearest = 3 / 10**0.5
    torch.testing.assert_close(found[:, 0], unknown_score(nearest).expand(3))
    torch.testing.assert_close(found[:, 1:].sum(1), torch.ones(3))
    ratio = found[0, 1] / found[0, 2]
    assert ratio.log() == pytest.approx((3 - 1) / 10**0.5 / 0.1, rel=1e-4)


def test_a_class_without_a_prototype_is_never_predicted() -> None:
    found = stored([True, True, False]).score(ROWS, VALUES)
    assert found[:, 1:].argmax(1).tolist() == [0, 1, 0]
    assert found[:, 3].max() < 1e-4
    torch.testing.assert_close(found[2, 0], unknown_score(1 / 10**0.5))


def test_without_prototypes_the_classifier_decides() -> None:
    assert torch.equal(stored([False, False, False]).score(ROWS, VALUES), VALUES)
