"""The scripts of examples/ run from start to picture."""

import importlib
from pathlib import Path

import pytest
from PIL import Image

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "picture", "told"),
    [
        ("two_folders_to_onnx", "labels.png", "the same label for 200 of 200 images"),
        ("compare_methods", "figures/scores-*.png", "dance: AUROC"),
        ("own_embeddings", "embeddings.png", "rows of new classes called unknown"),
    ],
)
def test_an_example_leaves_its_picture(
    name: str,
    picture: str,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("MPLBACKEND", "agg")
    importlib.import_module(name).main([str(tmp_path / "out"), "--steps", "10"])
    assert told in capfd.readouterr().out
    (file,) = (tmp_path / "out").glob(picture)
    assert Image.open(file).getextrema() != ((255, 255),) * 3


def test_every_example_is_listed() -> None:
    page = (EXAMPLES / "README.md").read_text()
    assert [p.name for p in EXAMPLES.glob("*.py") if f"({p.name})" not in page] == []
