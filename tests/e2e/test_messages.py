"""Bad command lines: exit status 2 and one sentence, which names the field and the value.

The sentences themselves are in `tests/snapshots/messages.txt`, so that a change of wording is read
there and nowhere else. Write them anew with
`UNIDA_WRITE_SNAPSHOTS=1 pytest tests/e2e/test_messages.py`.
"""

import os
import shlex
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.project import SMALL, Capture, Project, complaint
from tests.images import write_bad_files, write_classes, write_folder
from unida.cli.main import COMMANDS, main

SNAPSHOT = Path(__file__).parents[1] / "snapshots" / "messages.txt"

ADAPT = {
    # What there is to learn from.
    "--source empty": ["empty"],
    "--target empty": ["empty"],
    "--source nowhere": ["nowhere"],
    "--target nowhere": ["nowhere"],
    "--source ''": ["source", "''"],
    "--target ''": ["target", "''"],
    "--out ''": ["out", "''"],
    f"--source {'x' * 300}": ["xxx", "too long"],
    "--target bad": ["bad", "6 images", "half.jpg"],
    "--source lost-class": ["class wasp"],
    "--source one": ["one", "'ant'", "two"],
    "--source same": ["Ant, ant"],
    "--source unknown": ["'unknown'"],
    "--source-model finished": ["source", "source_model"],
    "--batch 11": ["source", "10", "11", "--batch 10"],
    "--target spoilt --batch 6": ["target", "5", "6", "--batch 5"],
    # Where the run is to lie.
    "--out finished": ["finished"],
    "--out taken": ["taken"],
    "--out taken/thesis.tex": ["thesis.tex"],
    "--out taken/thesis.tex/below": ["below", "Not a directory"],
    f"--out {'x' * 300}": ["File name too long"],
    # Unknown names: the error lists the allowed ones.
    "--set betta=1": ["'betta'", "beta"],
    "--set beta": ["'beta'", "KEY=VALUE"],
    "--set beta=x": ["beta", "'x'", "float"],
    "--set beta=-1": ["beta", "-1.0", "from 0 to 1000"],
    "--set third=cubic": ["third", "'cubic'", "log, sigmoid"],
    "--method sam": ["method", "'sam'"],
    "--backbone resnet51": ["backbone", "'resnet51'", "small_cnn, resnet18"],
    "--reject always": ["reject", "'always'", "share, own, mixture"],
    "--device tpu": ["device", "'tpu'", "auto, cpu, cuda"],
    "--weights /no/file": ["weights", "/no/file"],
    # Values out of range.
    "--steps 0": ["steps", "0", "1 or more"],
    "--batch 1": ["batch", "1", "2 or more"],
    "--image-size 7": ["image_size", "7", "8 or more"],
    "--lr nan": ["lr", "nan", "more than 0"],
    "--lr -1": ["lr", "-1.0", "more than 0"],
    "--momentum 1": ["momentum", "1.0", "from 0 up to"],
    "--jitter -0.1": ["jitter", "-0.1", "0 or more"],
    "--holdout 0.6": ["holdout", "0.6", "from 0 to 0.5"],
}
"""Options of `unida adapt`, added to a good command line, and words of the message."""

OTHERS = {
    "adopt": ["'adopt'", *COMMANDS],
    "adapt --out empty --resume": ["empty", "no run"],
    "predict empty target": ["empty", "model.safetensors"],
    "predict finished target lost": ["lost"],
    "predict finished lost.png": ["lost.png"],
    "predict finished target --reject always": ["reject", "'always'", "own, mixture", "source"],
    "predict finished target --to empty": ["empty", "folder"],
    "predict finished target --to lost/labels.csv": ["lost/labels.csv", "No such file"],
    "predict finished target/050.png rows.npy": ["rows.npy", "no images beside"],
    "predict finished rows.npy": ["rows.npy", "2 numbers", "128"],
    "embed target --to rows.csv": ["to", "rows.csv", ".npy or .parquet"],
    "embed target --to rows.npy": ["rows.npy", "--force"],
    "embed rows.npy --to more.npy": ["rows.npy", "embeddings already"],
    "adapt --embeddings rows.npy rows.npy --out out": ["rows.npy", "label"],
    "adapt --embeddings rows.npy target --out out": ["one kind"],
    "adapt --embeddings rows.npy rows.npy --out out --frozen": ["--frozen", "--embeddings"],
    "evaluate finished --labels rows.npy": ["rows.npy", "label"],
    "evaluate finished --labels wasps": ["wasps", "ant, bee"],
    "evaluate finished --labels Bees": ["'Bee'", "'bee'"],
    "export empty": ["empty", "model.safetensors"],
    "export finished --reject wrong": ["reject", "'wrong'"],
    "export finished --to lost/model.onnx": ["lost/model.onnx"],
    "discover empty": ["empty"],
    "export-predictions finished": ["--to"],
    "export-predictions finished --to lost.json": ["lost.json", "--format", "label-studio"],
    "export-predictions finished --to taken/thesis.tex --format csv": ["thesis.tex", "--force"],
    "export-predictions finished --to taken --format folders --force": ["taken", "not exported"],
    "export-predictions finished --to a.csv --budget 3": ["budget", "3", "label-studio"],
    "export-predictions finished --to a.json --format coco --copy": ["copy", "folders"],
    "export-predictions empty --to a.csv": ["empty", "no run"],
    "import-corrections finished lost.csv": ["lost.csv", "No such file"],
    "import-corrections finished taken/thesis.tex": ["thesis.tex", "path", "label"],
    "import-corrections empty lost.csv": ["empty", "no run"],
    "review finished --budget 0 --no-browser": ["budget", "0", "1 or more"],
    "report empty": ["empty"],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good project with a finished run, and whatever the command lines above name."""
    root = tmp_path_factory.mktemp("messages")
    project = Project(root)
    assert main(project.command("--out", str(root / "finished"))) == 0
    (root / "empty").mkdir()
    write_bad_files(root / "bad")
    write_bad_files(write_classes(root / "lost-class", {"ant": 5, "bee": 5}) / "wasp")
    write_classes(root / "one", {"ant": 5})
    write_classes(root / "same", {"ant": 5, "Ant": 5})
    write_classes(root / "unknown", {"ant": 5, "unknown": 5})
    (write_folder(root / "spoilt", 6, first=50) / "050.png").write_bytes(b"")
    (root / "taken").mkdir()
    (root / "taken" / "thesis.tex").write_text("mine")
    write_classes(root / "wasps", {"wasp": 1})
    write_classes(root / "Bees", {"ant": 1, "Bee": 1, "wasp": 1})
    np.save(root / "rows.npy", np.ones((2, 2), np.float16))
    (root / "rows.csv").write_text("path\na\nb\n")
    return root


def files_in(place: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


def test_a_mistake_is_one_sentence_and_changes_nothing(
    place: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    before = files_in(place)
    good = shlex.join(["adapt", "--source", "source", "--target", "target", "--out", "out", *SMALL])
    lines = {f"adapt … {more}": (f"{good} {more}", words) for more, words in ADAPT.items()}
    lines |= {line: (line, words) for line, words in OTHERS.items()}
    messages, wrong = [], []
    for shown, (line, words) in lines.items():
        try:
            printed = complaint(shlex.split(line), capfd).replace(str(place), "ROOT")
        except AssertionError as error:
            wrong.append(f"unida {shown}: {error}")
            continue
        if missing := [word for word in words if word not in printed]:
            wrong.append(f"unida {shown}: no {missing} in {printed!r}")
        messages.append(f"$ unida {shown}\n{printed}\n".replace("x" * 300, "x…x"))
    assert not wrong, "\n".join(wrong)
    assert files_in(place) == before
    assert not (place / "out").exists()

    text = "\n".join(messages)
    if os.environ.get("UNIDA_WRITE_SNAPSHOTS"):
        SNAPSHOT.write_text(text)
    assert text == SNAPSHOT.read_text()


def test_what_cannot_be_parsed_is_named_with_a_way_to_help(
    place: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    for option, value in (("--steps", "many"), ("--precision", "fp8"), ("--stepps", "3")):
        assert main(["adapt", *SMALL, option, value]) == 2
        printed = capfd.readouterr().err
        assert option.strip("-") in printed or value in printed
        assert "unida adapt --help" in printed
        assert "Traceback" not in printed


def test_the_corrected_command_runs(tmp_path: Path, capfd: Capture) -> None:
    project = Project(tmp_path)
    for mistake in (["--batch", "11"], ["--device", "tpu"]):
        complaint(project.command(*mistake), capfd)
    assert main(project.command()) == 0
