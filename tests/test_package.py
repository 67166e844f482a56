"""The wheel holds all the package needs, runs without the checkout, and has one version."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import unida

ROOT = Path(__file__).parents[1]


def test_one_version_everywhere() -> None:
    number = unida.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", number)
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## \[(\d\S*)\]", changes, re.MULTILINE)[0] == number
    assert f"\nversion: {number}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.slow
def test_the_wheel_runs_the_demo_without_the_checkout(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(
        ROOT / "src" / "unida",
        source / "src" / "unida",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "CHANGELOG.md"):
        shutil.copy(ROOT / name, source / name)
    wheel = ["pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    run = [sys.executable, "-m", *wheel, "-w", str(tmp_path), str(source)]
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob(f"unida-{unida.__version__}-*.whl")
    place = tmp_path / "installed"
    with zipfile.ZipFile(file) as content:
        content.extractall(place)
    package = ROOT / "src" / "unida"
    data = {p.relative_to(package) for p in package.rglob("*.*") if p.suffix not in (".py", ".pyc")}
    assert [p for p in data if not (place / "unida" / p).is_file()] == []

    # The packages it needs are those of this environment; an editable install comes after.
    code = (
        "import sys, unida.cli.main as m, pathlib; "
        "assert pathlib.Path(m.__file__).is_relative_to(sys.argv.pop(1)); sys.exit(m.main())"
    )
    words = ["demo", "--out", "demo", "--steps", "5"]
    done = subprocess.run(
        [sys.executable, "-c", code, str(place), *words],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "demo" / "mnist-uci-san" / "report.html").exists()
