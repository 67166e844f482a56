"""`--help` of every command, and how command lines are understood."""

import logging
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pytest
import tyro

from unida.cli.adapt import Adapt
from unida.cli.discover import Discover
from unida.cli.main import COMMANDS, main
from unida.cli.parser import parse
from unida.errors import UserError

Capture = pytest.CaptureFixture[str]

EXAMPLE = re.compile(r"^Example: unida (.+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """The help of every command, 80 columns wide."""
    shown = {}
    for name in COMMANDS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", "80")
            script = f"from unida.cli.main import main; main([*{name.split()}, '--help'])"
            command = [sys.executable, "-c", script]
            shown[name] = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return shown


class TestHelp:
    def test_it_fits_a_terminal_and_shows_no_empty_defaults(self, helps: dict[str, str]) -> None:
        for shown in helps.values():
            lines = [line for line in shown.splitlines() if not line.startswith("usage:")]
            assert max(map(len, lines)) <= 80
            for empty in ("{None}", "default: None", "default: )", "default: '')", "STR", "Args:"):
                assert empty not in shown

    def test_its_examples_are_understood(self, helps: dict[str, str]) -> None:
        for name, shown in helps.items():
            examples = EXAMPLE.findall(shown)
            assert examples, name
            for example in examples:
                assert example.startswith(name)
                if "--continue" not in example and "--resume" not in example:  # these read a run
                    words = shlex.split(example.removeprefix(name))
                    assert isinstance(COMMANDS[name].parse(name, words), COMMANDS[name])

    def test_many_options_are_under_headings(self, helps: dict[str, str]) -> None:
        for name, shown in helps.items():
            boxes = re.split(r"^╭─ ", shown, flags=re.MULTILINE)[1:]
            assert max(len(re.findall(r"^│ --", box, re.MULTILINE)) for box in boxes) <= 10, name

    def test_every_command_is_in_the_usage(self, capfd: Capture) -> None:
        assert main(["--help"]) == main([]) == 0
        shown = capfd.readouterr().out
        assert max(map(len, shown.splitlines())) <= 80
        for name in COMMANDS:
            assert re.search(rf"^  {name} +\w", shown, re.MULTILINE)

    def test_nothing_heavy_is_imported_for_it(self) -> None:
        code = "import sys, unida.cli.main; print('torch' in sys.modules, 'numpy' in sys.modules)"
        command = [sys.executable, "-c", code]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        assert run.stdout == "False False\n"


@dataclass(frozen=True)
class Base:
    """A base."""

    width: int = 3
    """How wide: this text is longer than a line of the file, so that it goes on in a
    second one."""


@dataclass(frozen=True)
class Group:
    """A group."""

    depth: int = 1
    """How deep."""
    marks: tuple[str, ...] = ()
    """Which marks."""

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise UserError("depth is too small.")


@dataclass(frozen=True)
class Study:
    """Options under two headings."""

    headings: ClassVar[dict[str, tuple[str, ...]]] = {"first": ("one",), "second": ("two",)}
    one: int = 1
    """The first."""
    two: int = 2
    """The second."""

    def __post_init__(self) -> None:
        if self.two < self.one:
            raise UserError("two is too small.")


@dataclass(frozen=True)
class Sample(Base):
    """A command."""

    headings: ClassVar[dict[str, tuple[str, ...]]] = {"remark": ("note", "more")}

    place: Annotated[Path, tyro.conf.Positional] = Path("here")
    """Where."""
    more: tuple[str, ...] = ()
    """What else."""
    note: str | None = None
    """A remark, if any."""
    kind: Literal["a", "b"] = "a"
    """Which."""
    label: Annotated[str, tyro.conf.arg(metavar="NAME", help="Its own words.")] = "x"
    names: list[str] = field(default_factory=lambda: ["one"])
    """Some."""
    group: Group = field(default_factory=Group)
    study: Study = field(default_factory=Study)


class TestParse:
    def test_values_defaults_bases_and_groups(self) -> None:
        args = ["there", "--more", "p", "q", "--note", "n", "--width", "4", "--depth", "5"]
        expected = Sample(4, Path("there"), ("p", "q"), "n", group=Group(5))
        assert parse(Sample, "try", args) == expected
        assert parse(Sample, "try", []) == Sample()
        assert parse(Sample, "try", ["--width", "5"], Sample(note="kept")) == Sample(5, note="kept")

    def test_options_under_headings_are_fields_like_others(self) -> None:
        given = parse(Sample, "try", ["--two", "7", "--note", "n"], Sample(study=Study(3, 4)))
        assert given == Sample(note="n", study=Study(3, 7))
        with pytest.raises(UserError, match="two is too small"):
            parse(Sample, "try", ["--one", "5"])

    def test_a_wrong_option_ends_it(self, capfd: Capture) -> None:
        with pytest.raises(SystemExit):
            parse(Sample, "try", ["--widht", "4"])
        assert "--width" in capfd.readouterr().err

    def test_a_bad_value_is_an_error_of_the_user(self) -> None:
        with pytest.raises(UserError, match="depth is too small"):
            parse(Sample, "try", ["--depth", "0"])

    def test_help(self, capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit):
            parse(Sample, "try", ["--help"])
        shown = " ".join(capfd.readouterr().out.split())
        for part in (
            "A command.",
            "PLACE Where. (default: here)",
            "--width N How wide: this text is longer than a line of the file, so that it goes on "
            "in a second one. (default: 3)",
            "--more TEXT ... What else.",
            "--note TEXT A remark, if any.",
            "--kind {a,b} Which. (default: a)",
            "--label NAME Its own words. (default: x)",
            "--depth N How deep. (default: 1)",
            "remark options",
            "first options",
            "--two N The second. (default: 2)",
        ):
            assert part in shown

    def test_a_list_may_be_given_in_parts(self) -> None:
        for words in ("--marks a --marks=b --width 9", "--marks a b --width 9"):
            given = parse(Sample, "try", words.split())
            assert (given.group.marks, given.width) == (("a", "b"), 9)

    def test_renamed_options_are_understood_with_a_warning(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING, "unida"):
            given = Adapt.parse("adapt", ["--members", "3", "--launch=compiled"])
        assert (given.decision.ensemble, given.compute.compile) == (3, True)
        assert caplog.records
        assert Discover.parse("discover", ["run", "--way", "kmeans"]).algorithm == "kmeans"
        with pytest.raises(UserError, match="launch is 'slow'"):
            Adapt.parse("adapt", ["--launch", "slow"])


class TestAdapt:
    def test_a_preset_gives_settings_and_options_and_what_is_named_wins(self) -> None:
        config = Adapt.parse("adapt", ["--method", "ovanet-released"]).config()
        assert (config.method, config.model.batch_norm) == ("ovanet", "batch")
        assert config.optim.backbone_lr == 0.1
        words = "--method ovanet-released --backbone-lr 0.5 --set lam=0.3"
        config = Adapt.parse("adapt", words.split()).config()
        assert (config.optim.backbone_lr, config.settings.lam) == (0.5, 0.3)
        assert config.model.batch_norm == "batch"


class TestMain:
    def test_version(self, capfd: Capture) -> None:
        assert main(["--version"]) == 0
        assert capfd.readouterr().out.startswith("unida ")

    def test_exit_codes(self, capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
        assert main(["adopt"]) == main(["data"]) == 2
        assert main(["adapt", "--stepz", "3"]) == 2
        assert main(["adapt", "--steps", "0"]) == 2
        assert capfd.readouterr().err.splitlines()[-1] == "unida: steps is 0; allowed: 1 or more."

        def stop(self: Adapt) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(Adapt, "execute", stop)
        assert main(["adapt"]) == 130
        assert "--resume" in capfd.readouterr().err

    def test_log_lines_are_shown_as_they_are(
        self, capfd: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def log(self: Adapt) -> None:
            logging.getLogger("unida").warning("[red]x esc\x1b[31m :smile:")

        monkeypatch.setattr(Adapt, "execute", log)
        assert main(["adapt"]) == 0
        assert capfd.readouterr().err == "Warning: [red]x esc\\x1b[31m :smile:\n"
        assert not logging.getLogger("unida").handlers
