"""How a command ends: exit status and what is printed."""

import json
import logging
import shutil
import subprocess

import pytest

from unida import __version__
from unida.cli import main as cli
from unida.cli.methods import Methods
from unida.cli.terminal import show_progress
from unida.methods import METHODS
from unida.utils.logs import logger


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`unida methods` ends with an error that nothing expects."""

    def execute(self: Methods) -> None:
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr(Methods, "execute", execute)


@pytest.mark.usefixtures("failing")
class TestUnforeseenErrors:
    def test_it_is_one_sentence(self, capfd: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["methods"]) == 1
        (line,) = capfd.readouterr().err.splitlines()
        assert "ZeroDivisionError: division by zero" in line
        assert "--debug" in line

    def test_debug_shows_the_trace_wherever_it_stands(self) -> None:
        for words in (["methods", "--debug"], ["--debug", "methods"]):
            with pytest.raises(ZeroDivisionError):
                cli.main(words)


def test_debug_is_no_option_of_a_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--debug"]) == 0
    assert "usage" in capfd.readouterr().out
    assert cli.main(["--debug", "methods"]) == 0
    assert "san" in capfd.readouterr().out


@pytest.mark.parametrize("command", ["report", "discover", "review", "export", "table", "figure"])
def test_a_name_that_is_too_long_is_one_sentence(
    command: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([command, "x" * 300]) == 2
    assert capfd.readouterr().err.endswith("cannot be used: File name too long.\n")


@pytest.mark.parametrize("word", ["--version", "-V"])
def test_the_version_is_all_that_is_printed(word: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main([word]) == 0
    assert capfd.readouterr() == (f"unida {__version__}\n", "")


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_help_has_an_example_and_no_colour_in_a_pipe(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*name.split(), "--help"]) == 0
    shown = capfd.readouterr().out
    assert f"Example: unida {name}" in " ".join(shown.split())
    assert "\x1b" not in shown


class TestVerbosity:
    @pytest.fixture(autouse=True)
    def _logging(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """`unida methods` logs at every level, and shows progress."""

        def execute(self: Methods) -> None:
            for level in (logging.DEBUG, logging.INFO, logging.WARNING):
                logger.log(level, "level %d", level)
            with show_progress() as progress:
                update = progress.task("task")
                for step in range(20):
                    update(step + 1, 20, "note")

        monkeypatch.setattr(Methods, "execute", execute)

    def lines(self, capfd: pytest.CaptureFixture[str], *words: str) -> list[str]:
        assert cli.main(["methods", *words]) == 0
        return capfd.readouterr().err.splitlines()

    def test_quiet_leaves_warnings_only(self, capfd: pytest.CaptureFixture[str]) -> None:
        assert self.lines(capfd, "-q") == ["Warning: level 30"]

    def test_as_usual_some_steps_are_shown(self, capfd: pytest.CaptureFixture[str]) -> None:
        first, second, *steps = self.lines(capfd)
        assert (first, second) == ("level 20", "Warning: level 30")
        assert 2 <= len(steps) <= 10

    def test_verbose_shows_all_with_the_time(self, capfd: pytest.CaptureFixture[str]) -> None:
        lines = self.lines(capfd, "--verbose")
        assert all(line[2] == line[5] == ":" for line in lines)
        assert __version__ in lines[0]
        assert len(lines) == 1 + 3 + 20
        assert logger.level != logging.DEBUG  # as it was


def test_methods_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["methods", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["methods"].keys() == METHODS.keys()
    assert found["methods"]["san"]["venue"] == "ICCV 2023"
    assert found["rules"]["share"]["usage"] == "share"
    assert "san-paper" in found["presets"]


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
@pytest.mark.parametrize(
    ("words", "some", "none"),
    [
        (["ad"], {"adapt"}, {"predict"}),
        (["adapt", "--so"], {"--source"}, {"--target"}),
        (["adapt", "--refine", ""], {"none", "knn"}, {"--refine"}),
        (["adapt", "--source", ""], set(), {"--source", "none"}),  # files
        (["data", ""], {"check"}, {"--root"}),
        (["data", "check", "--ro"], {"--root"}, set()),
    ],
)
def test_bash_completes_commands_options_and_values(
    words: list[str], some: set[str], none: set[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["completion", "bash"]) == 0
    script = capfd.readouterr().out
    typed = " ".join(f"'{word}'" for word in ["unida", *words])
    script += (
        f'COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _unida; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    assert found >= some
    assert not found & none
