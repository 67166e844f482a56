"""Settings of every method: bad ones are one sentence that names the field, before training."""

import dataclasses
import math
import typing
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

import unida.pipeline
from tests.methods.toys import SIZES, build
from tests.tasks import Task
from unida.config import from_mapping
from unida.data.domain import Domain, load_domains
from unida.data.samples import read_source, read_unlabelled
from unida.errors import UserError
from unida.methods import METHODS, Method
from unida.training.batches import Batches
from unida.training.loop import resolve_run, train
from unida.training.run_folder import RunFolder
from unida.types import Sizes

CPU = torch.device("cpu")


def numeric_fields(method: str) -> list[str]:
    config = METHODS[method].Config
    hints = typing.get_type_hints(config)
    names = [field.name for field in dataclasses.fields(config)]
    return [name for name in names if {int, float} & {hints[name], *typing.get_args(hints[name])}]


@pytest.fixture(scope="module")
def domains(digits: Task, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Domain]:
    config = digits.config(tmp_path_factory.mktemp("domains"))
    samples = {
        "source": read_source(config.data.source),
        "target": read_unlabelled(config.data.target),
    }
    return load_domains(config, CPU, samples, lambda name: lambda done, total: None)


@pytest.mark.parametrize("method", METHODS)
def test_a_number_is_refused_by_name_or_two_steps_are_finite(
    digits: Task, domains: dict[str, Domain], tmp_path: Path, method: str
) -> None:
    source, target = domains["source"], domains["target"]
    for field, value in product(numeric_fields(method), ("-1", "nan", "inf", str(10**9))):
        out = tmp_path / field / value
        options = {"method": method, "settings": (f"{field}={value}",), "steps": 2, "log_every": 1}
        try:
            config = digits.config(out, **options)
            backbone = unida.pipeline.make_backbone(config)
            (built,) = unida.pipeline._build_methods(config, backbone, source, target)
        except UserError as error:
            assert_names(error, field)
            continue
        # The loop checks that every loss and gradient is finite.
        out.mkdir(parents=True)
        config = resolve_run(config, built, CPU)
        batches = Batches(source, target, config)
        train(built, batches, config, CPU, RunFolder(out), lambda done, line: None)


def assert_names(error: UserError, field: str) -> None:
    sentence = str(error)
    assert sentence.startswith(f"{field} is ")
    assert "; allowed: " in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


BAD: dict[str, list[tuple[str, object, str]]] = {
    "cmu": [
        ("w0", 1.5, "from 0 to 1"),
        ("w0", math.nan, "from 0 to 1"),
        ("lam", -1.0, "from 0 to 1000"),
        ("ramp", 0.0, "more than 0, at most 1000"),
        ("crop", 0.0, "more than 0, at most 1"),
        ("epochs", 0, "1 or more"),
        ("width", 0, "from 1 to 16384"),
        ("hidden", 0, "from 1 to 16384"),
        ("confidence", "entropy", "max, margin"),
        ("released_pretraining", "perhaps", "true or false"),
    ],
    "dance": [
        ("eta", -1.0, "from 0 to 1000"),
        ("m", math.nan, "from 0 to 100"),
        ("rho", 1.0, "between 0 and 1"),
        ("rho", 0.0, "between 0 and 1"),
        ("tau", 0.0, "from 0.005 to 10"),
        ("momentum", 1.0, "from 0 up to, not including, 1"),
        ("target_view", "flip", "random, centre"),
    ],
    "dcc": [
        ("lam", -0.1, "from 0 to 1000"),
        ("gamma", math.nan, "from 0 to 1000"),
        ("ramp", 0.5, "from 1 to 1000"),
        ("tau", 0.0, "from 0.005 to 10"),
        ("warmup", 1.0, "from 0 up to, not including, 1"),
        ("q", 1, "from 2 to 100"),
        ("k_c", 0, "from 1 to 1000"),
        ("rounds", 0, "from 1 to 1000"),
        ("interval", 0, "from 1 to 1000"),
        ("k_max", 0, "from 1 to 1000"),
        ("sample", 0, "from 1 to 1000"),
        ("width", 0, "from 1 to 16384"),
        ("blocks", "all", "distinct, cycled"),
    ],
    "gate": [
        ("mix", -0.1, "from 0 to 1000"),
        ("energy", math.nan, "from 0 to 1000"),
        ("adv", math.inf, "from 0 to 1000"),
        ("sub", -1.0, "from 0 to 1000"),
        ("ent", -1.0, "from 0 to 1000"),
        ("beta", 0.0, "from 0.1 to 100"),
        ("tau", 0.0, "from 0.02 to 10"),
        ("r", -1, "from 0 to 10"),
        ("n", 0, "none, or 1 or more"),
        ("width", 0, "from 1 to 16384"),
        ("hidden", 0, "from 1 to 16384"),
        ("dropout", 1.0, "from 0 to below 1"),
    ],
    "glc": [
        ("lambda_psd", -1.0, "from 0 to 1000"),
        ("lambda_knn", -1.0, "from 0 to 1000"),
        ("rho", 1.5, "from 0 to 1"),
        ("rho", math.nan, "from 0 to 1"),
        ("w0", -0.1, "from 0 to 1"),
        ("k", 0, "none, or 1 or more"),
        ("smoothing", 1.0, "from 0 up to, not including, 1"),
        ("source_share", 1.1, "more than 0, at most 1"),
        ("source_share", 0.0, "more than 0, at most 1"),
        ("target_lr", 0.0, "more than 0, at most 100"),
        ("search", 5, "from 10 to 20000"),
        ("width", 0, "from 2 to 16384"),
    ],
    "lead": [
        ("lambda_reg", -1.0, "from 0 to 1000"),
        ("lambda_psd", -1.0, "from 0 to 1000"),
        ("released_weights", "perhaps", "true or false"),
    ],
    "mlnet": [
        ("ni", -1.0, "from 0 to 1000"),
        ("share", 1.5, "from 0 to 1"),
        ("alpha", 0.0, "from 0.01 to 100"),
        ("most", 0, "from 1 to 10000"),
        ("warmup", 0, "1 or more"),
    ],
    "spa": [
        ("base", "san", "dcc, ovanet"),
        ("words", 1, "from 2 to 16384"),
        ("width", 1, "from 2 to 16384"),
        ("tau", 0.0, "from 0.005 to 10"),
        ("lam_p", -1.0, "from 0 to 1000"),
        ("lam_e", math.inf, "from 0 to 1000"),
        ("lam_m", math.nan, "from 0 to 1000"),
        ("g_max", 1, "from 2 to 9"),
        ("g_max", 10, "from 2 to 9"),
        ("use", "both", "beside, instead"),
    ],
    "tnt": [
        ("lam1", -0.1, "from 0 to 1000"),
        ("lam2", math.nan, "from 0 to 1000"),
        ("margin", math.inf, "from 0 to 1"),
        ("evidence", "tanh", "softplus, exp, relu"),
        ("form", "cubed", "digamma, log, squared"),
        ("positives", "sum", "log_of_sum, mean_of_logs"),
        ("anneal", 0.0, "more than 0, at most 1"),
        ("anneal", 1.1, "more than 0, at most 1"),
        ("tau", 0.0, "from 0.005 to 10"),
        ("tau", math.inf, "from 0.005 to 10"),
        ("memory", 1.0, "from 0 to below 1"),
        ("ema", -0.5, "from 0 to below 1"),
        ("k", 0, "none, or 1 or more"),
        ("width", 0, "from 1 to 16384"),
    ],
    "uan": [
        ("w0", 1.5, "from -1 to 1"),
        ("w0", math.nan, "from -1 to 1"),
        ("lam", -1.0, "from 0 to 1000"),
        ("temperature", 0.0, "from 0.01 to 1000"),
        ("ramp", 0.0, "more than 0, at most 1000"),
        ("dropout", 1.0, "from 0 up to, not including, 1"),
        ("width", 0, "from 1 to 16384"),
        ("hidden", 0, "from 1 to 16384"),
        ("double_softmax", "perhaps", "true or false"),
    ],
    "uniot": [
        ("lam", -1.0, "from 0 to 1000"),
        ("warm_up", -1, "0 or more"),
        ("gamma", 1.5, "from -1 to 1"),
        ("mu", 2.0, "from 0 to 1"),
        ("mu", math.nan, "from 0 to 1"),
        ("tau", 0.0, "from 0.005 to 10"),
        ("K", 1, "none, or 2 or more"),
        ("queue", 0, "none, or 1 or more"),
        ("width", 0, "from 1 to 16384"),
    ],
}
"""Per method: field, value, what is allowed."""


@pytest.mark.parametrize("method", BAD)
def test_a_bad_setting_names_field_value_and_what_is_allowed(method: str) -> None:
    for field, value, allowed in BAD[method]:
        with pytest.raises(UserError) as error:
            from_mapping(METHODS[method].Config, {field: value}, method)
        assert str(error.value) == f"{field} is {value!r}; allowed: {allowed}."


@pytest.mark.parametrize("method", METHODS)
def test_an_unknown_option_is_an_error_that_lists_the_options(method: str) -> None:
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
    ],
)
def test_no_setting_exceeds_what_the_data_have(
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


def test_bad_settings_of_a_base_method_name_the_base() -> None:
    for base, settings, words in (
        ("dcc", "q=1", "q is 1; allowed: from 2 to 100"),
        ("dcc", "q", "setting of dcc"),
        ("ovanet", "q=3", "setting of ovanet"),
    ):
        with pytest.raises(UserError, match=words):
            build("spa", base=base, base_set=settings)
