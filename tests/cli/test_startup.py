"""What a command loads before it does anything, and that a named file needs no network."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from unida.models.backbones import build_backbone

HEAVY = ("torch", "numpy", "scipy", "sklearn", "pandas", "accelerate", "PIL", "transformers")
"""Each takes as long to import as a short command may take in all."""
BEYOND_TORCH = ("scipy", "sklearn", "pandas", "accelerate", "transformers", "matplotlib")

LOADED = """
import json, sys
{code}
found = [name for name in {names} if name in sys.modules]
print(json.dumps(found), file=sys.stderr)
"""


def loaded(code: str, names: tuple[str, ...]) -> list[str]:
    """Return those of some modules that are loaded after the code."""
    text = LOADED.format(code=code, names=names)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stderr.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["completion", "bash"], ["predict", "--help"]]
)
def test_a_command_that_computes_nothing_loads_nothing_heavy(words: list[str]) -> None:
    assert loaded(f"from unida.cli.main import main; main({words})", HEAVY) == []


def test_prediction_loads_torch_and_no_statistics() -> None:
    code = "import unida.model, unida.evaluation.diagnostics"
    assert loaded(code, ("torch", *BEYOND_TORCH)) == ["torch"]


def test_no_network_is_asked_where_a_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        pytest.fail("a network was asked")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    net = build_backbone("small_cnn", "none").net
    save_file(net.state_dict(), tmp_path / "weights.safetensors")
    again = build_backbone("small_cnn", str(tmp_path / "weights.safetensors"))
    assert again.pretrained
    for one, other in zip(net.parameters(), again.net.parameters(), strict=True):
        assert torch.equal(one, other)
