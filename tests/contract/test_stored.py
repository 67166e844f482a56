"""What a stored model holds: all that predictions need, and nothing that only training needed."""

import dataclasses
from typing import Any

from tests.contract.runs import CASES
from tests.methods.toys import build
from unida.bench.entries import BenchEntry
from unida.types import Sizes

SIZES = Sizes(n_classes=4, n_source=1000, n_target=1000, batch=6, steps=8)


def make(case: BenchEntry, sizes: Sizes) -> Any:
    settings = dict(text.split("=") for text in case.settings)
    return build(case.method, sizes, **settings)


def test_the_stored_state_is_as_large_however_many_images_there_were() -> None:
    more = dataclasses.replace(SIZES, n_source=7000, n_target=9000)
    for case in CASES:
        shapes = []
        for sizes in (SIZES, more):
            method = make(case, sizes)
            state = method.state_dict()
            assert set(method.training_only) <= set(state), case.name  # a checkpoint has them
            stored = state.keys() - set(method.training_only)
            shapes.append({name: state[name].shape for name in stored})
        assert shapes[0] == shapes[1], case.name
