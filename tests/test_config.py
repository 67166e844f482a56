"""Configuration: every bad value is one sentence, every good one survives a round trip."""

import dataclasses
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from unida.config import (
    GROUP_OF,
    GROUPS,
    OPTION_NAMES,
    RunConfig,
    from_mapping,
    parse_settings,
    to_json,
)
from unida.errors import UserError
from unida.methods import METHODS
from unida.methods.presets import PRESETS, configure, load_config
from unida.methods.san import SANConfig

FIXTURES = sorted((Path(__file__).parent / "fixtures" / "format6").glob("*/config.json"))


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
    assert RunConfig.from_flat() == config
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.optim.steps = 3  # type: ignore[misc]


def test_every_option_has_one_group() -> None:
    fields = [field.name for cls in GROUPS.values() for field in dataclasses.fields(cls)]
    assert len(fields) == len(set(fields)) == len(GROUP_OF)
    assert set(RunConfig().flat()) == set(OPTION_NAMES)


def test_flat_options_go_to_their_groups_and_come_back() -> None:
    config = RunConfig.from_flat(steps="7", flip="false", refine="knn", out=Path("o"))
    assert (config.optim.steps, config.data.flip, config.output.out) == (7, False, "o")
    assert config.decision.refine == "knn"
    assert RunConfig.from_flat(**{k: v for k, v in config.flat().items() if v != {}}) == config
    assert config.replace(steps=8).optim.steps == 8
    assert config.optim.steps == 7


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
    ("cuda_graphs", "true", "auto, on, off"),
    (
        "schedule",
        "linear",
        "inverse_decay, cosine, constant, or with its steps, as in inverse_decay:10000",
    ),
    ("refine", "some", "none, knn"),
    ("refine", ["knn"], "none, knn"),
]


def test_a_bad_value_is_named_with_what_is_allowed() -> None:
    for field, value, allowed in BAD:
        sentence = f"{field} is {value!r}; allowed: {allowed}."
        with pytest.raises(UserError) as direct:
            GROUPS[GROUP_OF[field]](**{field: value})
        with pytest.raises(UserError) as mapped:
            RunConfig.from_flat(**{field: value})
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
        RunConfig.from_flat(**{field: value})
    assert str(caught.value) == f"{field} is {value!r}; allowed: a value of type {kind}."


def test_the_edges_of_what_is_allowed_are_allowed() -> None:
    edge = {"steps": 1, "batch": 2, "image_size": 8, "log_every": 1, "checkpoint_every": 1}
    edge |= {"momentum": 0, "weight_decay": 0, "jitter": 0, "backbone_lr": 0}
    assert RunConfig.from_flat(**edge).flat().items() >= edge.items()


def test_a_compiled_step_is_a_recorded_one() -> None:
    assert RunConfig.from_flat(compile=True).compute.cuda_graphs == "auto"
    with pytest.raises(UserError, match="cuda_graphs is 'off'"):
        RunConfig.from_flat(compile=True, cuda_graphs="off")


def test_a_misspelt_key_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"'stepz'.*'steps'"):
        RunConfig.from_flat(stepz=3)
    with pytest.raises(UserError, match=r"'colour'.*allowed: .*flag, count"):
        parse_settings(Every, ("colour=1",), "it")
    with pytest.raises(UserError, match=r"'betta'.*'beta'"):
        configure("san", {"betta": 1})
    with pytest.raises(UserError, match=r"'san-papre'.*'san-paper'"):
        configure("san-papre")


def test_a_config_without_fields_allows_nothing() -> None:
    @dataclass(frozen=True)
    class Nothing:
        pass

    assert parse_settings(Nothing, (), "source_only") == Nothing()
    with pytest.raises(UserError, match=r"'beta'.*allowed: none"):
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
        ("flag", "setting of it is 'flag'; allowed: KEY=VALUE."),
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


class TestConfigure:
    def test_settings_are_typed_however_they_are_given(self) -> None:
        assert configure().settings == SANConfig()
        assert configure(settings=("beta=0.7", "lam=none")).settings == SANConfig(beta=0.7)
        assert configure(settings={"beta": "0.7"}).settings == SANConfig(beta=0.7)

    def test_every_preset_makes_a_run_and_what_is_given_beside_it_wins(self) -> None:
        for name, preset in PRESETS.items():
            config = configure(name)
            assert config.method == preset.method
            for key, value in preset.settings.items():
                assert getattr(config.settings, key) == value
            assert config.flat().items() >= dict(preset.options).items()
        own = configure("ovanet-released", {"lam": 0.2}, backbone_lr=0.5)
        assert (own.settings.lam, own.optim.backbone_lr) == (0.2, 0.5)
        assert own.model.batch_norm == "batch"

    def test_a_preset_is_no_method(self) -> None:
        assert not METHODS.keys() & PRESETS.keys()

    def test_renamed_options_are_understood_with_a_warning(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING, "unida"):
            config = configure(members=3, launch="compiled")
        assert (config.decision.ensemble, config.compute.compile) == (3, True)
        assert len(caplog.records) == 2
        assert configure(launch="eager").compute.cuda_graphs == "off"
        with pytest.raises(UserError, match="launch is 'fast'; allowed: auto, eager"):
            configure(launch="fast")

    @pytest.mark.parametrize("old", ["auto", "prototypes,knn"])
    def test_a_refinement_of_the_last_release_is_read_as_today_s(
        self, caplog: pytest.LogCaptureFixture, old: str
    ) -> None:
        assert configure(refine=old).decision.refine == "knn"
        assert [record.getMessage() for record in caplog.records] == [
            f"Option refine={old} is deprecated: use refine=knn."
        ]

    def test_settings_that_are_now_refinement_become_that_option(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        @dataclass(frozen=True)
        class Settings:
            beta: float = 0.5

        for name in ("san", "ovanet"):
            monkeypatch.setattr(METHODS[name], "Config", Settings)
        for method, settings, refine in (
            ("san", {"neighbours": 0}, "none"),
            ("san", {"neighbours": None, "anchors": True}, "knn"),
            ("san", {"neighbours": "6", "anchors": "false"}, "knn"),
            ("san", {"neighbours": 6}, "knn"),
            ("ovanet", {"neighbours": 4}, "knn"),
        ):
            caplog.clear()
            config = configure(method, {"beta": 0.7, **settings})
            assert (config.settings, config.decision.refine) == (Settings(0.7), refine)
            assert caplog.records
        assert configure("san", {"neighbours": 0}, refine="knn").decision.refine == "knn"
        assert configure("san", {"neighbours": 0}, refine="auto").decision.refine == "knn"


FULL = configure(
    "san", {"beta": 0.3, "contrast": "none"}, source="s", target="t", out="o", weights="none",
    lr=1e-3, backbone_lr=0.25, seed=-1, precision="bf16", flip=False, cache="disk", cache_dir="c",
    ensemble=2, refine="none",
)  # fmt: skip


class TestStored:
    @pytest.mark.parametrize("config", [configure("source_only"), FULL])
    def test_a_config_survives_the_way_to_disk_and_back(
        self, tmp_path: Path, config: RunConfig
    ) -> None:
        path = tmp_path / "config.json"
        path.write_text(json.dumps({"format": 2, "run": to_json(config)}))
        assert load_config(path) == config

    @pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.parent.name)
    def test_the_format_before_is_read(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        old, config = json.loads(path.read_text())["run"], load_config(path)
        now = config.flat()
        assert now["ensemble"] == old["members"]
        same = old.keys() & now.keys() - {"settings"}
        assert {name: now[name] for name in same} == {name: old[name] for name in same}
        settings = dict(text.split("=") for text in old["settings"])
        for name in settings.keys() & now["settings"].keys():
            assert float(settings[name]) == now["settings"][name]
        assert not caplog.records

    def test_a_refinement_of_the_last_release_is_read_without_a_warning(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path, run = tmp_path / "config.json", to_json(configure("ovanet"))
        run["decision"]["refine"] = "prototypes,knn"
        path.write_text(json.dumps({"format": 2, "run": run}))
        assert load_config(path).decision.refine == "knn"
        assert not caplog.records

    def test_a_removed_setting_with_its_old_default_is_dropped(self, tmp_path: Path) -> None:
        path = tmp_path / "config.json"
        for value, is_read in (("z", True), ("y", False)):
            run = {"method": "san", "settings": [f"reads={value}"]}
            path.write_text(json.dumps({"run": run}))
            if is_read:
                assert load_config(path).settings == SANConfig()
            else:
                with pytest.raises(UserError, match="'reads' does not exist"):
                    load_config(path)

    def test_a_run_from_before_there_was_a_hold_out_had_none(self, tmp_path: Path) -> None:
        path = tmp_path / "config.json"
        path.write_text(json.dumps({"run": {"method": "dance"}}))
        config = load_config(path)
        assert (config.data.holdout, config.decision.refine) == (0, "none")

    @pytest.mark.parametrize(
        "content",
        [b"", b"{", b"[]", b"3", b"{}", b'{"run": 3}', b'{"run": [1]}', b'{"run": null}'],
    )
    def test_a_broken_file_is_one_sentence(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "config.json"
        for text in (content, b"\xff\xfe" + content, b'{"format": 2, "run": {"data": 3}}'):
            path.write_bytes(text)
            with pytest.raises(UserError, match=r"config\.json is not the config\.json of a run"):
                load_config(path)

    def test_any_odd_content_is_one_sentence(self, tmp_path: Path) -> None:
        path = tmp_path / "config.json"
        groups = '"data": {}, "model": {}, "optim": {}, "compute": {}, "decision": {}, "output": {}'
        for run in ('"method": []', '"method": {}', '"x y": 3', '"settings": 3', '"steps": [[]]'):
            path.write_text(f'{{"format": 2, "run": {{{groups}, {run}}}}}')
            with pytest.raises(UserError, match=r"config\.json"):
                load_config(path)
        for text in ("[" * 100_000, '{"a": ' * 100_000, "9" * 5000, '{"run": {}, "format": []}'):
            path.write_text(text)
            with pytest.raises(UserError, match=r"config\.json") as error:
                load_config(path)
            assert len(str(error.value)) < 1000

    def test_a_missing_file_is_one_sentence(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"is not the config\.json of a run"):
            load_config(tmp_path / "config.json")

    def test_a_foreign_field_or_format_is_named_with_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "config.json"
        path.write_text(json.dumps({"run": {"method": "san", "epochs": 3}}))
        with pytest.raises(UserError, match=r"config\.json.*'epochs'"):
            load_config(path)
        path.write_text(json.dumps({"format": 9, "run": {}}))
        with pytest.raises(UserError, match=r"config\.json is 9; allowed: 1 to 2"):
            load_config(path)


@pytest.mark.parametrize(("size", "pixels"), [(224, 256), (16, 18), (8, 9)])
def test_cached_images_are_an_eighth_larger_than_the_input(size: int, pixels: int) -> None:
    assert RunConfig.from_flat(image_size=size).data.pixel_size == pixels
