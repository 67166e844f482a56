"""`--help` of every command: it fits a terminal and has an example that works."""

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import tyro

import unida.cli.main
from unida.cli.main import COMMANDS, USAGE, main
from unida.cli.parser import parse

Capture = pytest.CaptureFixture[str]

EXAMPLE = re.compile(r"^Example: unida (.+)$", re.MULTILINE)
every = pytest.mark.parametrize("command", COMMANDS)


def help_of(command: str, capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([command, "--help"]) == 0
    return capfd.readouterr().out


@every
def test_it_fits_a_terminal_and_has_one_example(
    command: str, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = help_of(command, capfd, monkeypatch)
    (example,) = EXAMPLE.findall(shown)
    assert example.split()[0] == command
    lines = [line for line in shown.splitlines() if not line.startswith(("usage:", "Example:"))]
    assert max(map(len, lines)) <= 80
    assert max(map(len, USAGE.splitlines())) <= 80


@every
def test_it_says_no_nonsense(command: str, capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = help_of(command, capfd, monkeypatch)
    for nonsense in ("{None}", "default: None", "default: )", "default: '')", "STR", "Args:"):
        assert nonsense not in shown


@every
def test_the_example_is_one_that_the_command_understands(
    command: str, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = EXAMPLE.findall(help_of(command, capfd, monkeypatch))
    understood: list[Any] = []

    def only_parse(*args: Any) -> Any:
        understood.append(parse(*args))
        raise SystemExit(0)  # nothing is done

    monkeypatch.setattr(unida.cli.main, "_parse", only_parse)
    assert main(shlex.split(example)) == 0
    assert len(understood) == 1


@every
def test_it_is_in_the_list_of_commands(command: str) -> None:
    assert re.search(rf"^  {command} +\w", USAGE, re.MULTILINE)


@dataclass(frozen=True)
class Base:
    """A base."""

    width: int = 3
    """How wide: this text is longer than a line of the file, so that it goes on in a
    second one."""


@dataclass(frozen=True)
class Sample(Base):
    """A command."""

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


class TestParse:
    def test_values_defaults_and_bases(self) -> None:
        given = parse(Sample, "try", ["there", "--more", "p", "q", "--note", "n", "--width", "4"])
        assert given == Sample(4, Path("there"), ("p", "q"), "n")
        assert parse(Sample, "try", []) == Sample()
        assert parse(Sample, "try", ["--width", "5"], Sample(note="kept")) == Sample(5, note="kept")

    def test_a_wrong_option_ends_it(self, capfd: Capture) -> None:
        with pytest.raises(SystemExit):
            parse(Sample, "try", ["--widht", "4"])
        assert "widht" in capfd.readouterr().err

    def test_help(self, capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit):
            parse(Sample, "try", ["--help"])
        shown = " ".join(capfd.readouterr().out.split())
        for part in (
            "PLACE Where. (default: here)",
            "--width N How wide: this text is longer than a line of the file, so that it goes on "
            "in a second one. (default: 3)",
            "--more TEXT ... What else.",
            "--note TEXT A remark, if any.",
            "--kind {a,b} Which. (default: a)",
            "--label NAME Its own words. (default: x)",
        ):
            assert part in shown


@pytest.mark.parametrize(
    "words",
    [
        "--set lam=1 --set beta=0.5 --steps 9",
        "--set lam=1 beta=0.5 --steps 9",
        "--set=lam=1 --steps 9 --set beta=0.5",
    ],
)
def test_a_list_may_be_given_in_parts(words: str) -> None:
    given = parse(unida.cli.main.Adapt, "adapt", shlex.split(words))
    assert (given.settings, given.steps) == (("lam=1", "beta=0.5"), 9)
