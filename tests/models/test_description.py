"""A damaged or hostile description of a model is one sentence, before anything is built of it."""

import json
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from unida.errors import UserError
from unida.model import load
from unida.models.description import check_network, parse_description
from unida.models.weights import read_model, read_weights
from unida.report.data import read_model_header
from unida.training.run_folder import RunFolder

FIXTURES = Path(__file__).parents[1] / "fixtures" / "format6"

Edit = Callable[[dict[str, Any]], object]

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 10**12, 1e308, float("nan"), float("inf"), "", "x", "none", [], [1],
    ["a", "a"], {}, {"a": 1}, [[]] * 3, "\ud800",
)  # fmt: skip


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and description of an ensemble in today's format."""
    file = tmp_path_factory.mktemp("model") / "model.safetensors"
    load(FIXTURES / "ensemble", "cpu").save(file)
    found = read_model(file)
    assert found is not None
    return found


def damaged(stored: tuple[dict[str, Tensor], dict[str, Any]], edit: Edit, folder: Path) -> Path:
    tensors, description = stored
    d = json.loads(json.dumps(description))
    edit(d)
    save_file(tensors, folder / "model.safetensors", {"unida": json.dumps(d)})
    return folder / "model.safetensors"


HOSTILE: dict[str, Edit] = {
    "many members": lambda d: d.update(refiners=[None] * 10_000_000),
    "a large method": lambda d: d["sizes"].update(n_target=10**15),
    "many classes": lambda d: d["sizes"].update(n_classes=10**9),
    "a large refiner": lambda d: d.update(
        refiners=[{"n_images": 2**39, "widths": [2**39], "n_classes": 4, "k": 6, "n_source": 0}] * 2
    ),
    "a large reference": lambda d: d.update(
        reference={"n_features": 2**30, "n_dimensions": 2**30, "n_images": 2**30}
    ),
    "a large image": lambda d: d.update(pixel_size=2**31),
    "an unknown method": lambda d: d.update(method="sam"),
    "an unknown backbone": lambda d: d.update(backbone='{"name": "resnet19"}'),
    "no name of a backbone": lambda d: d.update(backbone="{}"),
    "a backbone that is a list": lambda d: d.update(backbone="[1]"),
    "the same class twice": lambda d: d.update(classes=["a"] * 4),
    "a rule without a threshold": lambda d: d["rules"].update(own={}),
    "a threshold that is no number": lambda d: d["rules"]["own"].update(threshold=float("nan")),
    "no temperature": lambda d: d.update(temperature=float("nan")),
}


@pytest.mark.parametrize("edit", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_description_is_refused_at_once(
    stored: tuple[dict[str, Tensor], dict[str, Any]], edit: Edit, tmp_path: Path
) -> None:
    file = damaged(stored, edit, tmp_path)
    started = time.monotonic()
    with pytest.raises(UserError) as error:
        load(file, "cpu")
    assert time.monotonic() - started < 60
    assert len(str(error.value)) < 1000
    assert "\n" not in str(error.value)


def test_any_odd_value_opens_or_is_one_sentence(
    stored: tuple[dict[str, Tensor], dict[str, Any]], tmp_path: Path
) -> None:
    for name in stored[1]:
        for value in ODD:
            file = damaged(stored, partial(dict.update, **{name: value}), tmp_path)
            header = RunFolder(tmp_path)
            reasons = complaint(load, file, "cpu"), complaint(read_model_header, header)
            assert max(map(len, reasons)) < 1000, (name, value)


def test_any_odd_value_inside_opens_or_is_one_sentence(
    stored: tuple[dict[str, Tensor], dict[str, Any]], tmp_path: Path
) -> None:
    rng = random.Random(0)
    places = list(_places(stored[1]))
    for _ in range(300):
        (*outer, last), value = rng.choice(places), rng.choice(ODD)

        def edit(d: Any, outer: list[Any] = outer, last: Any = last, value: Any = value) -> None:
            for key in outer:
                d = d[key]
            d[last] = value

        assert len(complaint(load, damaged(stored, edit, tmp_path), "cpu")) < 1000


def _places(content: Any, outer: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Keys that lead to each value of nested objects and lists."""
    pairs = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in pairs:
        yield (*outer, key)
        if isinstance(value, dict | list):
            yield from _places(value, (*outer, key))


def complaint(read: Callable[..., object], *args: object) -> str:
    try:
        read(*args)
    except UserError as error:
        return str(error)
    return ""


def test_text_that_is_no_description_is_refused() -> None:
    for text in ("", "{", "[]", "null", "1", "[" * 100_000, "{}", '"x"', "\ud800"):
        with pytest.raises(UserError, match="a file"):
            parse_description(text, "a file")


def test_many_members_of_an_earlier_format_are_refused(tmp_path: Path) -> None:
    with safe_open(FIXTURES / "ensemble" / "model.safetensors", "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        d = json.loads(file.metadata()["unida"])
    save_file(tensors, tmp_path / "a.safetensors", {"unida": json.dumps(d | {"members": 10**7})})
    with pytest.raises(UserError, match=r"members of .* is 10000000; allowed: from 1 to 100"):
        load(tmp_path / "a.safetensors", "cpu")


def test_a_network_may_not_exceed_its_tensors() -> None:
    tensors = {str(i): torch.zeros(100) for i in range(20)}
    config = {"hidden_size": 768, "depths": [3, 4], "nested": {"num_hidden_layers": 12}}
    check_network(config, tensors)
    for name, value in (
        ("num_hidden_layers", 10**9),
        ("depths", [2, 10**9]),
        ("hidden_size", 2**40),
    ):
        with pytest.raises(UserError, match=f"{name} of the backbone"):
            check_network(config | {name: value}, tensors)


def test_weights_that_are_not_finite_are_refused(
    stored: tuple[dict[str, Tensor], dict[str, Any]], tmp_path: Path
) -> None:
    tensors, description = stored
    for value in (float("nan"), float("inf")):
        name = next(name for name in tensors if name.endswith("weight"))
        sick = dict(tensors) | {name: tensors[name].clone()}
        sick[name].view(-1)[0] = value
        save_file(sick, tmp_path / "a.safetensors", {"unida": json.dumps(description)})
        with pytest.raises(UserError, match=f"not finite: .*{name.split('.')[-2]}"):
            load(tmp_path / "a.safetensors", "cpu")
    assert read_weights(tmp_path / "a.safetensors")[0].keys() == tensors.keys()
