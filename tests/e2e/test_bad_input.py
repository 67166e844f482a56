"""Whatever is wrong with what a user gives: one sentence and exit status 2, or a run that says
what it left out."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import unida
from tests.images import (
    BAD_FILES,
    file_size_limit,
    read_csv,
    write_bad_files,
    write_classes,
    write_folder,
    write_image,
)
from unida.cli.main import COMMANDS, main
from unida.training.run_folder import RunFolder

Capture = pytest.CaptureFixture[str]


class Project:
    """Good source and target folders in `root`, to be spoiled, and the command to adapt."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.source = write_classes(root / "source", {"ant": 5, "bee": 5})
        self.target = write_folder(root / "target", 6, first=50)
        self.out = root / "out"

    def command(self, *more: str) -> list[str]:
        """Later options win over earlier ones."""
        places = ["--source", str(self.source), "--target", str(self.target)]
        small = ["--backbone", "small_cnn", "--image-size", "8", "--device", "cpu"]
        short = ["--steps", "2", "--batch", "4"]
        return ["adapt", *places, "--out", str(self.out), *small, *short, *more]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose run is finished; tests do not write to it."""
    project = Project(tmp_path_factory.mktemp("finished"))
    assert main(project.command()) == 0
    return project


def complaint(command: list[str], capfd: Capture) -> str:
    """The one sentence on standard error of a command that fails, and nothing else."""
    capfd.readouterr()
    assert main(command) == 2
    shown = capfd.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert shown.err.startswith("unida: ")
    assert shown.err.endswith(".\n")
    return shown.err.removeprefix("unida: ").rstrip("\n")


def remarks(command: list[str], capfd: Capture) -> str:
    """What a command that succeeds says on standard error."""
    capfd.readouterr()
    assert main(command) == 0
    return capfd.readouterr().err


class TestNothingToLearnFrom:
    @pytest.mark.parametrize("role", ["source", "target"])
    def test_an_empty_folder(self, project: Project, capfd: Capture, role: str) -> None:
        empty = project.root / "empty"
        empty.mkdir()
        setattr(project, role, empty)
        assert complaint(project.command(), capfd).startswith(f"{empty} holds no image")
        assert not project.out.exists()

    @pytest.mark.parametrize("role", ["source", "target"])
    def test_a_missing_folder(self, project: Project, capfd: Capture, role: str) -> None:
        setattr(project, role, project.root / "nowhere")
        expected = f"{project.root / 'nowhere'} does not exist."
        assert complaint(project.command(), capfd) == expected
        assert not project.out.exists()

    @pytest.mark.parametrize("role", ["source", "target", "out"])
    def test_no_folder(self, project: Project, capfd: Capture, role: str) -> None:
        assert complaint(project.command(f"--{role}", ""), capfd).startswith(f"{role} is ''")

    def test_a_folder_name_that_is_too_long(self, project: Project, capfd: Capture) -> None:
        said = complaint(project.command("--source", "x" * 300), capfd)
        assert said.endswith("x cannot be read: File name too long.")

    def test_no_readable_target_image(self, project: Project, capfd: Capture) -> None:
        project.target = project.root / "bad"
        write_bad_files(project.target)
        said = complaint(project.command(), capfd)
        assert said.startswith("None of the 6 images can be read: ")
        assert f"{project.target / 'half.jpg'} (broken: " in said

    def test_no_readable_image_of_a_class(self, project: Project, capfd: Capture) -> None:
        write_bad_files(project.source / "wasp")
        said = complaint(project.command(), capfd)
        assert said == "No image of class wasp can be read: mend or remove the class."

    def test_one_class(self, project: Project, capfd: Capture) -> None:
        write_classes(project.root / "one", {"ant": 5})
        project.source = project.root / "one"
        expected = f"{project.source} has one class, 'ant': two or more are needed to tell apart."
        assert complaint(project.command(), capfd) == expected

    def test_class_names_that_differ_only_in_case(self, project: Project, capfd: Capture) -> None:
        write_classes(project.source, {"Ant": 5})
        assert "differ only in case (Ant, ant)" in complaint(project.command(), capfd)

    def test_a_class_called_unknown(self, project: Project, capfd: Capture) -> None:
        write_classes(project.source, {"unknown": 5})
        assert "has a class called 'unknown'" in complaint(project.command(), capfd)

    def test_fewer_source_images_than_a_batch(self, project: Project, capfd: Capture) -> None:
        said = complaint(project.command("--batch", "11"), capfd)
        assert said.startswith("The source has 10 usable images, fewer than a batch of 11: ")
        assert "--batch 10" in said

    def test_fewer_target_images_than_a_batch(self, project: Project, capfd: Capture) -> None:
        (project.target / "050.png").write_bytes(b"")
        said = complaint(project.command("--batch", "6"), capfd)
        assert said.startswith("The target has 5 usable images, fewer than a batch of 6: ")
        assert "--batch 5" in said


class TestAFewBadFiles:
    def test_a_run_goes_on_without_them_and_says_why(
        self, project: Project, capfd: Capture
    ) -> None:
        reasons = write_bad_files(project.source / "ant") | write_bad_files(project.target)
        loose = write_image(project.source / "loose.png")
        reasons[loose] = "outside any class folder"
        said = remarks(project.command(), capfd)
        skipped = project.out / "skipped.csv"
        assert f"{len(reasons)} files were left out; {skipped} says why." in said.splitlines()
        rows = {Path(row["path"]): row["reason"] for row in read_csv(skipped)}
        assert rows.keys() == reasons.keys()
        for path, reason in rows.items():
            assert reason.startswith(reasons[path])
        labelled = [Path(row["path"]).name for row in read_csv(project.out / "predictions.csv")]
        assert labelled == [f"{i:03}.png" for i in range(50, 56)]

    @pytest.mark.parametrize("cache", ["memory", "disk", "stream"])
    def test_wherever_pixels_are_kept(self, project: Project, cache: str) -> None:
        write_bad_files(project.target)
        more = ["--cache", cache, "--cache-dir", str(project.root / "cache")]
        assert main(project.command("--method", "source_only", *more)) == 0
        assert len(read_csv(project.out / "skipped.csv")) == len(BAD_FILES)
        assert len(read_csv(project.out / "predictions.csv")) == 6

    def test_without_any_the_list_is_there_and_empty(self, finished: Project) -> None:
        assert (finished.out / "skipped.csv").read_text() == "path,reason\n"

    def test_a_class_of_one_image_is_learned_with_a_warning(
        self, project: Project, capfd: Capture
    ) -> None:
        write_classes(project.source, {"wasp": 1})
        said = remarks(project.command(), capfd)
        assert "Warning: one image only for class wasp; more would help." in said.splitlines()
        assert unida.load(project.out, "cpu").classes == ("ant", "bee", "wasp")

    def test_predict_names_what_it_leaves_out(self, finished: Project, capfd: Capture) -> None:
        bad = finished.root / "bad.heic"
        bad.write_text("no image")
        good = finished.target / "050.png"
        said = remarks(["predict", str(finished.out), str(bad), str(good)], capfd)
        assert said == f"left out: {bad} (not an image, or of a kind that is not read)\n"

    def test_predict_refuses_a_path_that_is_not_there(
        self, finished: Project, capfd: Capture
    ) -> None:
        lost, good = finished.root / "lost", finished.target / "050.png"
        said = complaint(["predict", str(finished.out), str(good), str(lost)], capfd)
        assert said == f"There is no {lost}."

    @pytest.mark.parametrize("place", ["", "lost/labels.csv"])
    def test_a_file_that_cannot_be_written(
        self,
        finished: Project,
        tmp_path: Path,
        capfd: Capture,
        monkeypatch: pytest.MonkeyPatch,
        place: str,
    ) -> None:
        monkeypatch.setattr("unida.cli.main.load", None)  # it is found before anything is loaded
        to = tmp_path / place
        command = ["predict", str(finished.out), str(finished.target), "--to", str(to)]
        said = complaint(command, capfd)
        assert str(to) in said
        assert ("is a folder" if not place else "cannot be written: No such file") in said

    def test_a_reader_that_leaves_is_no_accident(self, finished: Project) -> None:
        command = ["predict", str(finished.out), str(finished.target)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-m", "unida", *command], **pipes) as child:
            assert child.stdout is not None
            child.stdout.close()  # as `head` does
            said = child.stderr.read() if child.stderr else b""
        assert (child.returncode, said) == (1, b"")

    def test_evaluate_refuses_a_class_that_is_spelt_otherwise(
        self, finished: Project, tmp_path: Path, capfd: Capture
    ) -> None:
        labels = write_classes(tmp_path, {"ant": 1, "Bee": 1, "wasp": 1})
        said = complaint(["evaluate", str(finished.out), "--labels", str(labels)], capfd)
        assert said == f"{labels} has the class 'Bee', and the model 'bee': rename it."

    def test_evaluate_says_what_counts_as_unknown_and_what_was_left_out(
        self, finished: Project, tmp_path: Path, capfd: Capture
    ) -> None:
        labels = write_classes(tmp_path / "lab[/x]", {"ant": 2, "wasp": 2})
        (labels / "empty").mkdir()
        model = str(finished.out / "model.safetensors")  # tests do not write to the run
        said = remarks(["evaluate", model, "--labels", str(labels)], capfd)
        assert "Counted as unknown: wasp." in said
        assert "empty (a class folder without images)" in said

    def test_resume_where_nothing_was_begun(self, tmp_path: Path, capfd: Capture) -> None:
        said = complaint(["adapt", "--out", str(tmp_path / "none"), "--resume"], capfd)
        assert (
            said == f"{tmp_path / 'none'} holds no run to go on with: give the whole command again."
        )


NAMES = [
    "two words.png",
    "comma, and \"quotes\" and 'single'.png",
    "new\nline.png",
    "ähnlich-圖像-🐜.png",
    "[red]markup.png",
    os.fsdecode(b"not utf-8 \xff\xfe.png"),
    " spaces .png",
    "line\u2028separator\x85.png",
]


class TestOddNames:
    def test_paths_come_back_as_they_were(self, project: Project) -> None:
        project.target = project.root / "odd"
        for i, name in enumerate(NAMES):
            write_image(project.target / name, seed=i)
        (project.target / 'bad\nname,".png').write_bytes(b"")
        assert main(project.command()) == 0
        paths = [row["path"] for row in read_csv(project.out / "predictions.csv")]
        assert sorted(paths) == sorted(str(project.target / name) for name in NAMES)
        (skipped,) = read_csv(project.out / "skipped.csv")
        assert skipped == {"path": str(project.target / 'bad\nname,".png'), "reason": "empty file"}

    def test_a_carriage_return_comes_back_as_it_was(self, project: Project) -> None:
        write_image(project.target / "carriage\rreturn.png")
        assert main(project.command()) == 0
        paths = [row["path"] for row in read_csv(project.out / "predictions.csv")]
        assert str(project.target / "carriage\rreturn.png") in paths

    def test_class_names_come_back_as_they_were(self, project: Project) -> None:
        classes = [name.removesuffix(".png") for name in NAMES]
        project.source = write_classes(project.root / "odd", dict.fromkeys(classes, 2))
        assert main(project.command()) == 0
        assert unida.load(project.out, "cpu").classes == tuple(sorted(classes))
        labels = {row["label"] for row in read_csv(project.out / "predictions.csv")}
        assert labels <= {*classes, "unknown"}

    def test_predictions_can_be_the_next_target(self, project: Project) -> None:
        project.target = project.root / "odd"
        for i, name in enumerate(NAMES):
            write_image(project.target / name, seed=i)
        assert main(project.command()) == 0
        first = project.out / "predictions.csv"
        project.target, project.out = first, project.root / "second"
        assert main(project.command()) == 0
        paths = [[row["path"] for row in read_csv(f)] for f in (first, project.out / first.name)]
        assert paths[0] == paths[1]

    def test_an_error_about_an_odd_name_is_still_one_line(
        self, project: Project, capfd: Capture
    ) -> None:
        project.target = project.root / "new\nline"
        assert "does not exist" in complaint(project.command(), capfd)


class TestOutputFolder:
    def test_a_finished_run_is_not_written_over(self, finished: Project, capfd: Capture) -> None:
        before = contents(finished.out)
        expected = f"{finished.out} holds a finished run: name another --out."
        assert complaint(finished.command(), capfd) == expected
        assert contents(finished.out) == before

    def test_an_unfinished_run_can_only_be_gone_on_with(
        self, project: Project, capfd: Capture
    ) -> None:
        assert main(project.command()) == 0
        (project.out / "done").unlink()
        before = contents(project.out)
        said = complaint(project.command(), capfd)
        assert said.startswith(f"{project.out} holds an unfinished run: ")
        assert "--resume" in said
        said = complaint(project.command("--resume", "--lr", "0.5"), capfd)
        assert said.startswith(f"{project.out} was started with other settings (lr=0.01): ")
        assert contents(project.out) == before

    def test_other_files_are_not_mixed_with_a_run(self, project: Project, capfd: Capture) -> None:
        project.out.mkdir()
        (project.out / "thesis.tex").write_text("mine")
        expected = f"{project.out} is there and not an empty folder: name another --out."
        assert complaint(project.command(), capfd) == expected
        assert contents(project.out) == {"thesis.tex": b"mine"}

    def test_a_file_is_no_folder(self, project: Project, capfd: Capture) -> None:
        project.out.write_text("mine")
        assert "not an empty folder" in complaint(project.command(), capfd)
        project.out = project.out / "below"
        assert "cannot be made: Not a directory" in complaint(project.command(), capfd)

    def test_a_folder_without_a_run_cannot_predict(self, project: Project, capfd: Capture) -> None:
        said = complaint(["predict", str(project.out), str(project.target)], capfd)
        assert said == f"{project.out} holds no run: there is no model.safetensors in it."

    def test_a_name_that_is_too_long(self, project: Project, capfd: Capture) -> None:
        project.out = project.root / ("x" * 300)
        assert "File name too long" in complaint(project.command(), capfd)

    def test_a_broken_checkpoint_is_named(self, project: Project, capfd: Capture) -> None:
        assert main(project.command()) == 0
        (project.out / "done").unlink()
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
        assert last.startswith(f"unida: {project.out / 'state.pt'} cannot be written: ")
        assert "goes on with --resume" in last
        expected = {"config.json", "metrics.jsonl", "skipped.csv", "state.pt"}
        assert contents(project.out).keys() == expected
        assert json.loads((project.out / "config.json").read_text())["run"]["steps"] == 3
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
        assert last.startswith(f"unida: {model} cannot be written: File too large. ")
        assert contents(project.out).keys() == {"config.json", "metrics.jsonl", "skipped.csv"}

    def test_a_run_that_cannot_begin_says_so(self, project: Project, capfd: Capture) -> None:
        with file_size_limit(200):
            said = complaint(project.command(), capfd)
        assert said.startswith(f"{project.out / 'config.json'} cannot be written: File too large.")
        assert contents(project.out) == {}

    def test_the_pixel_cache_says_what_to_do(self, project: Project, capfd: Capture) -> None:
        cache = project.root / "cache"
        with file_size_limit(1900):
            command = project.command("--cache", "disk", "--cache-dir", str(cache))
            said = complaint(command, capfd)
        assert said.startswith(f"The pixel cache cannot be written in {cache}: File too large.")
        assert not list(cache.glob("*.u8*"))


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            (["--set", "betta=1"], "a setting of san is 'betta'; allowed: lam, beta, alpha"),
            (["--set", "beta"], "a setting of san is 'beta'; allowed: KEY=VALUE."),
            (["--set", "beta=x"], "beta is 'x'; allowed: a value of type float."),
            (["--set", "beta=-1"], "beta is -1.0; allowed: from 0 to 1000."),
            (["--set", "third=cubic"], "third is 'cubic'; allowed: log, sigmoid."),
            (["--method", "sam"], "method is 'sam'; allowed: cmu, dance, dcc"),
            (["--backbone", "resnet51"], "backbone is 'resnet51'; allowed: small_cnn, resnet18"),
            (["--reject", "always"], "reject is 'always'; allowed: own, mixture"),
            (["--device", "tpu"], "device is 'tpu'; allowed: auto, cpu, cuda"),
            (["--weights", "/no/file"], "weights: /no/file is not a file."),
        ],
    )
    def test_a_name_that_is_none_is_answered_with_those_that_are(
        self, project: Project, capfd: Capture, options: list[str], expected: str
    ) -> None:
        assert complaint(project.command(*options), capfd).startswith(expected)

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            (["--steps", "0"], "steps is 0; allowed: 1 or more."),
            (["--batch", "1"], "batch is 1; allowed: 2 or more."),
            (["--image-size", "7"], "image_size is 7; allowed: 8 or more."),
            (["--lr", "nan"], "lr is nan; allowed: more than 0."),
            (["--lr", "-1"], "lr is -1.0; allowed: more than 0."),
            (["--momentum", "1"], "momentum is 1.0; allowed: from 0 up to"),
            (["--jitter", "-0.1"], "jitter is -0.1; allowed: 0 or more."),
            (["--holdout", "0.6"], "holdout is 0.6; allowed: from 0 to 0.5."),
        ],
    )
    def test_a_bad_value_is_one_sentence_that_names_it(
        self, project: Project, capfd: Capture, options: list[str], expected: str
    ) -> None:
        assert expected in complaint(project.command(*options), capfd)
        assert not project.out.exists()

    @pytest.mark.parametrize(
        "options", [["--steps", "many"], ["--precision", "fp8"], ["--stepps", "3"]]
    )
    def test_what_cannot_be_parsed_is_named_with_a_way_to_help(
        self, project: Project, capfd: Capture, options: list[str]
    ) -> None:
        assert main(project.command(*options)) == 2
        said = capfd.readouterr().err
        assert options[-1] in said
        assert "unida adapt --help" in said
        assert "Traceback" not in said
        assert not project.out.exists()

    def test_an_unknown_command_is_answered_with_the_commands(self, capfd: Capture) -> None:
        expected = f"no command 'adopt'; the commands are {', '.join(COMMANDS)}."
        assert complaint(["adopt"], capfd) == expected

    def test_predict_refuses_an_unknown_rule(self, finished: Project, capfd: Capture) -> None:
        command = ["predict", str(finished.out), str(finished.target), "--reject", "always"]
        expected = "reject is 'always'; allowed: own, mixture, source[:SHARE], threshold:VALUE."
        assert complaint(command, capfd) == expected

    def test_predict_says_why_no_image_can_be_used(self, finished: Project, capfd: Capture) -> None:
        command = ["predict", str(finished.out), str(finished.root / "lost.png")]
        assert "lost.png" in complaint(command, capfd)

    def test_evaluate_refuses_labels_without_a_known_class(
        self, finished: Project, tmp_path: Path, capfd: Capture
    ) -> None:
        labels = write_classes(tmp_path, {"wasp": 1})
        command = ["evaluate", str(finished.out), "--labels", str(labels)]
        expected = f"No class folder of {labels} is a known class (ant, bee)."
        assert complaint(command, capfd) == expected


class TestAfterAMistake:
    @pytest.mark.parametrize("mistake", [["--batch", "11"], ["--device", "tpu"]])
    def test_the_mended_command_runs(
        self, project: Project, capfd: Capture, mistake: list[str]
    ) -> None:
        complaint(project.command(*mistake), capfd)
        assert main(project.command()) == 0
