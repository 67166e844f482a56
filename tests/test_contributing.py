"""The example of CONTRIBUTING.md is a method like any other: the contract is run on it."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import unida
from tests.contract import test_contract as contract
from tests.contract.runs import train
from tests.tasks import QUICK, Task
from unida.bench.entries import BenchEntry
from unida.errors import UserError
from unida.methods import METHODS

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The example, put where the text puts it: a module, and a line in `METHODS`."""
    code, line = BLOCKS
    key, cls = re.fullmatch(r'\s*"(\w+)": (\w+),\n', line).groups()  # type: ignore[union-attr]
    path = tmp_path / f"{key}.py"
    path.write_text(code)
    spec = importlib.util.spec_from_file_location(key, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, key, module)  # where dataclasses look for types
    spec.loader.exec_module(module)
    monkeypatch.setitem(METHODS, key, getattr(module, cls))
    return str(key)


def test_the_example_is_short_and_in_house_style(tmp_path: Path) -> None:
    code = BLOCKS[0]
    assert len([line for line in code.splitlines() if line]) <= 40
    path = tmp_path / "example.py"
    path.write_text(code)
    config = f"--config={ROOT / 'pyproject.toml'}"
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--no-cache", config, str(path)],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_keeps_the_contract(digits: Task, tmp_path: Path, name: str) -> None:
    run = train(digits, tmp_path / "run", BenchEntry(name, name))
    assert isinstance(run.model.method, METHODS[name])
    contract.test_losses_stay_finite_and_a_run_is_complete(run)
    contract.test_every_parameter_gets_a_gradient(run)
    contract.test_killed_and_resumed_equals_uninterrupted(run, digits, tmp_path)
    contract.test_one_image_is_predicted_as_among_others_or_refused(run, digits)
    contract.test_a_stored_model_predicts_the_same_and_is_stored_again(run, digits, tmp_path)


def test_a_bad_setting_of_the_example_is_named(digits: Task, out: Path, name: str) -> None:
    for settings, words in (
        ({"lam": -1}, ("lam", "-1.0", "from 0 to 1000")),
        ({"p0": "nan"}, ("p0", "nan", "from 0 to 1")),
        ({"tau": 1}, ("tau", "lam, p0")),
    ):
        with pytest.raises(UserError) as error:
            unida.adapt(digits.source, digits.target, out, method=name, settings=settings, **QUICK)
        assert all(word in str(error.value) for word in words)
