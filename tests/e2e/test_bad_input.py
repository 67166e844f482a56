"""Whatever is wrong with the files a user gives: a run goes on and logs what it left out, and
nothing of earlier runs is lost. Bad command lines are in `test_messages`."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import unida
from tests.e2e.project import Capture, Project, complaint, remarks
from tests.images import (
    BAD_FILES,
    file_size_limit,
    read_csv,
    write_bad_files,
    write_classes,
    write_image,
)
from unida.cli.main import main
from unida.training.run_folder import RunFolder


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose run is finished; tests do not write to it."""
    project = Project(tmp_path_factory.mktemp("finished"))
    assert main(project.command()) == 0
    assert (project.out / "skipped.csv").read_text() == "path,reason\n"
    return project


class TestAFewBadFiles:
    def test_a_run_goes_on_without_them_and_logs_why(
        self, project: Project, capfd: Capture
    ) -> None:
        reasons = write_bad_files(project.source / "ant") | write_bad_files(project.target)
        loose = write_image(project.source / "loose.png")
        reasons[loose] = "outside any class folder"
        printed = remarks(project.command(), capfd)
        skipped = project.out / "skipped.csv"
        assert f"{len(reasons)} files" in printed
        assert str(skipped) in printed
        rows = {Path(row["path"]): row["reason"] for row in read_csv(skipped)}
        assert rows.keys() == reasons.keys()
        for path, reason in rows.items():
            assert reason.startswith(reasons[path])
        labelled = [Path(row["path"]).name for row in read_csv(project.out / "predictions.csv")]
        assert labelled == [f"{i:03}.png" for i in range(50, 56)]

    def test_wherever_pixels_are_kept(self, project: Project) -> None:
        write_bad_files(project.target)
        for cache in ("memory", "disk", "stream"):
            project.out = project.root / cache
            more = ["--cache", cache, "--cache-dir", str(project.root / "cache")]
            assert main(project.command("--method", "source_only", *more)) == 0
            assert len(read_csv(project.out / "skipped.csv")) == len(BAD_FILES)
            assert len(read_csv(project.out / "predictions.csv")) == 6

    def test_a_class_of_one_image_is_learned_with_a_warning(
        self, project: Project, capfd: Capture
    ) -> None:
        write_classes(project.source, {"wasp": 1})
        printed = remarks(project.command(), capfd)
        assert "class wasp" in printed
        assert unida.load(project.out, "cpu").classes == ("ant", "bee", "wasp")

    def test_predict_names_what_it_leaves_out(self, finished: Project, capfd: Capture) -> None:
        bad = finished.root / "bad.heic"
        bad.write_text("no image")
        good = finished.target / "050.png"
        printed = remarks(["predict", str(finished.out), str(bad), str(good)], capfd)
        assert printed.count("\n") == 1
        assert f"{bad} (not an image" in printed

    def test_a_reader_that_leaves_is_no_accident(self, finished: Project) -> None:
        command = ["predict", str(finished.out), str(finished.target)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-m", "unida", *command], **pipes) as child:
            assert child.stdout is not None
            child.stdout.close()  # as `head` does
            printed = child.stderr.read() if child.stderr else b""
        assert (child.returncode, printed) == (1, b"")

    def test_evaluate_logs_what_counts_as_unknown_and_what_was_left_out(
        self, finished: Project, tmp_path: Path, capfd: Capture
    ) -> None:
        labels = write_classes(tmp_path / "lab[/x]", {"ant": 2, "wasp": 2})
        (labels / "empty").mkdir()
        model = str(finished.out / "model.safetensors")  # tests do not write to the run
        printed = remarks(["evaluate", model, "--labels", str(labels)], capfd)
        assert "unknown: wasp" in printed
        assert "empty (a class folder without images)" in printed


NAMES = [
    "two words.png",
    "comma, and \"quotes\" and 'single'.png",
    "new\nline.png",
    "ähnlich-圖像-🐜.png",
    "[red]markup.png",
    os.fsdecode(b"not utf-8 \xff\xfe.png"),
    " spaces .png",
    "line\u2028separator\x85.png",
    "carriage\rreturn.png",
]


def test_odd_names_come_back_as_they_were(project: Project) -> None:
    classes = [name.removesuffix(".png") for name in NAMES]
    project.source = write_classes(project.root / "classes", dict.fromkeys(classes, 2))
    project.target = project.root / "odd"
    for i, name in enumerate(NAMES):
        write_image(project.target / name, seed=i)
    (project.target / 'bad\nname,".png').write_bytes(b"")
    assert main(project.command()) == 0
    first = project.out / "predictions.csv"
    rows = read_csv(first)
    assert sorted(row["path"] for row in rows) == sorted(str(project.target / n) for n in NAMES)
    assert {row["label"] for row in rows} <= {*classes, "unknown"}
    assert unida.load(project.out, "cpu").classes == tuple(sorted(classes))
    (skipped,) = read_csv(project.out / "skipped.csv")
    assert skipped == {"path": str(project.target / 'bad\nname,".png'), "reason": "empty file"}

    # The predictions can be the next target.
    project.target, project.out = first, project.root / "second"
    assert main(project.command()) == 0
    again = [row["path"] for row in read_csv(project.out / "predictions.csv")]
    assert again == [row["path"] for row in rows]


def test_an_unfinished_run_can_only_be_resumed(project: Project, capfd: Capture) -> None:
    assert main(project.command()) == 0
    (project.out / "done").unlink()
    before = contents(project.out)
    assert "--resume" in complaint(project.command(), capfd)
    assert "lr=0.01" in complaint(project.command("--resume", "--lr", "0.5"), capfd)
    assert contents(project.out) == before
    (project.out / "state.pt").write_bytes(b"junk")
    assert "state.pt" in complaint(project.command("--resume"), capfd)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class TestFullDisk:
    def test_nothing_written_before_is_lost(
        self, project: Project, capfd: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        save = RunFolder.save_state

        def save_once(run: RunFolder, state: dict[str, Any]) -> None:
            if state["step"] == 1:
                save(run, state)
            else:
                with file_size_limit(100_000):
                    save(run, state)

        monkeypatch.setattr(RunFolder, "save_state", save_once)
        assert main(project.command("--steps", "3", "--checkpoint-every", "1")) == 2
        last = capfd.readouterr().err.splitlines()[-1]
        assert str(project.out / "state.pt") in last
        assert "--resume" in last
        expected = {"config.json", "metrics.jsonl", "skipped.csv", "state.pt"}
        assert contents(project.out).keys() == expected
        assert '"steps": 3' in (project.out / "config.json").read_text()
        assert torch.load(project.out / "state.pt", weights_only=True)["step"] == 1

        monkeypatch.undo()
        assert main(["adapt", "--out", str(project.out), "--resume"]) == 0
        lines = (project.out / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == [1, 2, 3]
        assert (project.out / "done").exists()

    def test_the_model_is_written_whole_or_not_at_all(
        self, project: Project, capfd: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(RunFolder, "save_state", lambda *_: None)
        with file_size_limit(100_000):
            assert main(project.command()) == 2
        last = capfd.readouterr().err.splitlines()[-1]
        model = project.out / "model.safetensors"
        assert str(model) in last
        assert "File too large" in last
        assert contents(project.out).keys() == {"config.json", "metrics.jsonl", "skipped.csv"}

    def test_a_run_that_cannot_begin_is_an_error(self, project: Project, capfd: Capture) -> None:
        with file_size_limit(200):
            printed = complaint(project.command(), capfd)
        assert str(project.out / "config.json") in printed
        assert not project.out.exists()

    def test_the_error_of_a_pixel_cache_names_the_folder(
        self, project: Project, capfd: Capture
    ) -> None:
        cache = project.root / "cache"
        with file_size_limit(1900):
            command = project.command("--cache", "disk", "--cache-dir", str(cache))
            printed = complaint(command, capfd)
        assert str(cache) in printed
        assert "File too large" in printed
        assert not list(cache.glob("*.u8*"))
