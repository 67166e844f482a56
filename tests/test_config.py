"""Configuration: every bad value is one sentence, every good one survives a round trip."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from unida.config import RunConfig, from_mapping, load_config, parse_settings, to_settings
from unida.errors import UserError


@dataclass(frozen=True)
class Every:
    """One field of every type a config may have."""

    flag: bool = True
    count: int = 1
    rate: float = 0.5
    name: str = "x"
    kind: Literal["a", "b"] = "a"
    maybe_rate: float | None = 0.1
    maybe_name: str | None = "y"
    maybe_kind: Literal["a", "b"] | None = None
    marked: Annotated[int, "a remark"] = 0
    names: tuple[str, ...] = ()
    rates: tuple[float, ...] = ()


def test_the_defaults_are_valid_and_frozen() -> None:
    config = RunConfig()
    assert from_mapping(RunConfig, {}, "a run") == config
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.steps = 3  # type: ignore[misc]


BAD: list[tuple[str, Any, str]] = [
    ("steps", 0, "1 or more"),
    ("batch", 1, "2 or more"),
    ("image_size", 7, "8 or more"),
    ("log_every", 0, "1 or more"),
    ("checkpoint_every", 0, "1 or more"),
    ("lr", 0.0, "more than 0"),
    ("lr", float("nan"), "more than 0"),
    ("memory_gb", -1.0, "more than 0"),
    ("weight_decay", -0.1, "0 or more"),
    ("jitter", -1.0, "0 or more"),
    ("jitter", float("nan"), "0 or more"),
    ("momentum", 1.0, "from 0 up to, not including, 1"),
    ("momentum", -0.1, "from 0 up to, not including, 1"),
    ("backbone_lr", -1.0, "0 or more"),
    ("precision", "fp8", "auto, fp32, tf32, bf16"),
    ("batch_norm", "group", "auto, batch, stored"),
    ("cache", "ram", "auto, memory, disk, stream"),
]


@pytest.mark.parametrize(("field", "value", "allowed"), BAD)
def test_a_bad_value_is_named_with_what_is_allowed(field: str, value: Any, allowed: str) -> None:
    sentence = f"{field} is {value!r}; allowed: {allowed}."
    with pytest.raises(UserError) as direct:
        RunConfig(**{field: value})
    with pytest.raises(UserError) as mapped:
        from_mapping(RunConfig, {field: value}, "a run")
    assert str(direct.value) == str(mapped.value) == sentence


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [
        ("steps", "many", "int"),
        ("steps", "1e3", "int"),
        ("steps", 2.5, "int"),
        ("steps", float("inf"), "int"),
        ("steps", None, "int"),
        ("lr", "fast", "float"),
        ("lr", [0.1], "float"),
        ("backbone_lr", "", "float"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_with_the_type(
    field: str, value: Any, kind: str
) -> None:
    with pytest.raises(UserError) as caught:
        from_mapping(RunConfig, {field: value}, "a run")
    assert str(caught.value) == f"{field} is {value!r}; allowed: a value of type {kind}."


def test_the_edges_of_what_is_allowed_are_allowed() -> None:
    edge = {"steps": 1, "batch": 2, "image_size": 8, "log_every": 1, "checkpoint_every": 1}
    edge |= {"momentum": 0, "weight_decay": 0, "jitter": 0, "backbone_lr": 0}
    config = from_mapping(RunConfig, edge, "a run")
    assert {name: getattr(config, name) for name in edge} == edge


def test_a_misspelt_key_is_an_error_that_lists_the_fields() -> None:
    with pytest.raises(UserError, match=r"a setting of a run is 'stepz'; allowed: .*steps"):
        from_mapping(RunConfig, {"stepz": 3}, "a run")
    with pytest.raises(UserError, match="a setting of san is 'betta'; allowed: flag, count"):
        parse_settings(Every, ("betta=1",), "san")


def test_a_config_without_fields_allows_nothing() -> None:
    @dataclass(frozen=True)
    class Nothing:
        pass

    assert parse_settings(Nothing, (), "source_only") == Nothing()
    with pytest.raises(UserError, match="a setting of source_only is 'beta'; allowed: none"):
        parse_settings(Nothing, ("beta=1",), "source_only")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("flag=true", True),
        ("flag=False", False),
        ("count=-3", -3),
        ("rate=1e-3", 1e-3),
        ("rate=2", 2.0),
        ("name=a=b", "a=b"),
        ("name=", ""),
        ("name=none", "none"),
        (" count = 4 ", 4),
        ("kind=b", "b"),
        ("maybe_rate=0.25", 0.25),
        ("maybe_rate=none", None),
        ("maybe_rate=None", None),
        ("maybe_name=none", "none"),  # of text, 'none' is a word like any other
        ("maybe_kind=b", "b"),
        ("maybe_kind=none", None),
        ("marked=5", 5),
        ("names=one", ("one",)),
        ("rates=0.5", (0.5,)),
    ],
)
def test_text_is_parsed_to_the_fields_type(text: str, value: Any) -> None:
    parsed = getattr(parse_settings(Every, (text,), "it"), text.partition("=")[0].strip())
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("flag=yes", "flag is 'yes'; allowed: true or false."),
        ("flag=", "flag is ''; allowed: true or false."),
        ("count=1.0", "count is '1.0'; allowed: a value of type int."),
        ("rate=x", "rate is 'x'; allowed: a value of type float."),
        ("kind=c", "kind is 'c'; allowed: a, b."),
        ("maybe_kind=c", "maybe_kind is 'c'; allowed: a, b."),
        ("rates=x", "rates is 'x'; allowed: a value of type float."),
        ("flag", "a setting of it is 'flag'; allowed: KEY=VALUE."),
    ],
)
def test_bad_text_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_settings(Every, (text,), "it")
    assert str(caught.value) == sentence


def test_a_list_becomes_a_tuple_of_the_right_type() -> None:
    made = from_mapping(Every, {"names": ["a", "b"], "rates": ["1", 2]}, "it")
    assert made.names == ("a", "b")
    assert made.rates == (1.0, 2.0)
    with pytest.raises(UserError, match="names is 5; allowed: a list"):
        from_mapping(Every, {"names": 5}, "it")


def test_paths_are_taken_as_text() -> None:
    config = from_mapping(RunConfig, {"weights": Path("a/b.pt"), "out": Path("o")}, "a run")
    assert (config.weights, config.out) == ("a/b.pt", "o")


def test_settings_survive_the_way_to_text_and_back() -> None:
    values = {"rate": 0.1 + 0.2, "flag": False, "maybe_rate": None, "kind": "b", "count": 7}
    texts = to_settings(values)
    assert texts == ("count=7", "flag=False", "kind=b", "maybe_rate=None", f"rate={0.1 + 0.2!r}")
    assert dataclasses.asdict(parse_settings(Every, texts, "it")).items() >= values.items()


FULL = RunConfig(
    source="s", target="t", out="o", settings=("beta=0.5", "scl=1"), weights="none", lr=1e-3,
    backbone_lr=0.25, seed=-1, precision="bf16", flip=False, cache="disk", cache_dir="c",
)  # fmt: skip


@pytest.mark.parametrize("config", [RunConfig(), FULL])
def test_a_config_survives_the_way_to_disk_and_back(tmp_path: Path, config: RunConfig) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"format": 1, "run": dataclasses.asdict(config)}))
    assert load_config(path) == config


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"3", b"{}", b'{"run": 3}', b'{"run": [1]}', b'{"run": null}', b"\xff\xfe"],
)
def test_a_broken_config_file_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"config\.json is not the config\.json of a run"):
        load_config(path)


def test_a_missing_config_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is not the config\.json of a run"):
        load_config(tmp_path / "config.json")


def test_a_config_file_with_a_foreign_field_names_file_and_field(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"run": {"epochs": 3}}))
    with pytest.raises(UserError, match=r"a setting of .*config\.json is 'epochs'; allowed: "):
        load_config(path)


@pytest.mark.parametrize(("size", "pixels"), [(224, 256), (16, 18), (8, 9)])
def test_cached_images_are_an_eighth_larger_than_what_is_seen(size: int, pixels: int) -> None:
    assert RunConfig(image_size=size).pixel_size == pixels
