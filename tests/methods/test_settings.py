"""Bad settings, of every method: one sentence that names the field, before training starts."""

import dataclasses
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import unida.pipeline
from tests.methods.toys import SIZES, build
from tests.tasks import Task
from unida.data.domain import Domain, load_domains
from unida.data.samples import read_source, read_unlabelled
from unida.errors import UserError
from unida.methods import METHODS, Method
from unida.training.loop import Batches, train
from unida.training.run_folder import RunFolder
from unida.types import Sizes

CPU = torch.device("cpu")


def numeric_fields() -> Iterator[tuple[str, str]]:
    for name, cls in METHODS.items():
        hints = typing.get_type_hints(cls.Config)
        for field in dataclasses.fields(cls.Config):
            hint = hints[field.name]
            if {int, float} & {hint, *typing.get_args(hint)}:
                yield name, field.name


@pytest.fixture(scope="module")
def domains(digits: Task, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Domain]:
    config = digits.config(tmp_path_factory.mktemp("domains"))
    samples = {
        "source": read_source(config.data.source),
        "target": read_unlabelled(config.data.target),
    }
    return load_domains(config, CPU, samples, lambda name: lambda done, total: None)


@pytest.mark.parametrize("value", ["-1", "nan", "inf", str(10**9)])
@pytest.mark.parametrize(("method", "field"), list(numeric_fields()))
def test_a_number_is_refused_by_name_or_two_steps_are_finite(
    digits: Task, domains: dict[str, Domain], tmp_path: Path, method: str, field: str, value: str
) -> None:
    source, target = domains["source"], domains["target"]
    options = {"method": method, "settings": (f"{field}={value}",), "steps": 2, "log_every": 1}
    try:
        config = digits.config(tmp_path / "run", **options)
        backbone = unida.pipeline.make_backbone(config)
        built = unida.pipeline._build_method(config, backbone, source, target)
    except UserError as error:
        assert_names(error, field)
        return
    # The loop checks that every loss and gradient is finite.
    batches = Batches(source, target, config)
    train(built, batches, config, CPU, RunFolder(tmp_path), lambda done, line: None)


def assert_names(error: UserError, field: str) -> None:
    sentence = str(error)
    assert sentence.startswith(f"{field} is ")
    assert "; allowed: " in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


@pytest.mark.parametrize("method", METHODS)
def test_an_unknown_option_is_answered_with_those_there_are(method: str) -> None:
    fields = ", ".join(f.name for f in dataclasses.fields(METHODS[method].Config)) or "none"
    with pytest.raises(UserError) as error:
        build(method, qqq=1)
    assert "'qqq'" in str(error.value)
    assert f"allowed: {fields}" in str(error.value)


@pytest.mark.parametrize(
    ("method", "field", "most", "what"),
    [
        ("dcc", "k_max", 6, "target images a class"),
        ("gate", "n", 5, "other images in a batch"),
        ("glc", "k", 23, "other target images"),
        ("san", "top_n", 4, "classes"),
        ("tnt", "k", 24, "images of the smaller domain"),
        ("uniot", "K", 24, "target images"),
        ("uniot", "queue", 24, "target images"),
    ],
)
def test_no_more_can_be_asked_for_than_there_is(
    method: str, field: str, most: int, what: str
) -> None:
    build(method, SIZES, **{field: most})
    with pytest.raises(UserError) as error:
        build(method, SIZES, **{field: most + 1})
    sentence = f"{field} is {most + 1}; allowed: at most {most}, the number of {what}."
    assert str(error.value) == sentence


@pytest.mark.parametrize("method", METHODS)
def test_defaults_fit_the_smallest_data(method: str) -> None:
    assert isinstance(build(method, Sizes(2, 2, 2, 2, 1)), Method)


@pytest.mark.parametrize(
    ("n_classes", "given", "top_n"), [(2, None, 2), (20, None, 20), (50, None, 20), (50, 30, 30)]
)
def test_the_softmax_of_san_is_over_all_classes_but_twenty_at_most(
    n_classes: int, given: int | None, top_n: int
) -> None:
    sizes = dataclasses.replace(SIZES, n_classes=n_classes)
    assert build("san", sizes, top_n=given).top_n == top_n


def test_settings_of_a_base_method_are_bound_by_the_data_too() -> None:
    settings: dict[str, Any] = {"base_set": "k_max=7"}
    with pytest.raises(UserError, match="k_max is 7; allowed: at most 6"):
        build("spa", **settings)
