"""How a command ends: exit status and what is printed."""

import pytest

from unida.cli import main as cli
from unida.cli.methods import Methods


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
