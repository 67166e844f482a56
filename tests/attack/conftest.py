"""What all attacks share; their options are in tests/conftest.py."""

from collections.abc import Iterator

import pytest
import torch

from tests.attack.hands import Hands, hands
from tests.attack.place import Place, make_place


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the forked commands, whose results are compared
    made = make_place(tmp_path_factory.mktemp("attack"))
    torch.set_num_threads(threads)
    return made


@pytest.fixture(scope="session")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hands]:
    with hands(tmp_path_factory.mktemp("hands")) as started:
        yield started
