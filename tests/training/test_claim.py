"""A run folder belongs to one run: nothing is mixed, and what a kill leaves does not block it."""

import errno
import json
import os
from pathlib import Path

import pytest

from tests.processes import UNIDA, started, wait_for
from tests.tasks import Task
from unida.cli.main import main
from unida.errors import UserError
from unida.pipeline import run_adaptation
from unida.training import claim
from unida.training.claim import claimed, leftovers
from unida.training.run_folder import RunFolder
from unida.utils import distributed
from unida.utils.locks import held, write_holder

Capture = pytest.CaptureFixture[str]


class TestLock:
    def test_a_second_run_is_told_who_holds_the_folder(self, digits: Task, out: Path) -> None:
        out.mkdir()
        here = rf"run is in use by process {os.getpid()} on \S+ since \d{{4}}-\d\d-\d\d \S+: wait"
        with held(RunFolder(out).lock) as file:
            assert file is not None
            write_holder(file)
            for resume in (False, True):
                with pytest.raises(UserError, match=here):
                    run_adaptation(digits.config(out, steps=1), resume=resume)
        run_adaptation(digits.config(out, steps=1))  # what has ended holds nothing
        assert not RunFolder(out).lock.exists()

    def test_it_is_held_while_the_run_goes_on(self, digits: Task, out: Path) -> None:
        run, config = RunFolder(out), digits.config(out)
        with claimed(run, config, resume=False), pytest.raises(UserError, match="in use by"):
            run_adaptation(config)
        assert not out.exists()  # no run has begun

    def test_a_folder_that_was_there_stays(self, digits: Task, out: Path) -> None:
        out.mkdir()
        with claimed(RunFolder(out), digits.config(out), resume=False):
            pass
        assert list(out.iterdir()) == []

    def test_the_main_process_alone_holds_it(
        self, digits: Task, out: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = digits.config(out)
        with claimed(RunFolder(out), config, resume=False):
            monkeypatch.setattr(distributed, "is_main_process", lambda: False)
            with claimed(RunFolder(out), config, resume=False):
                monkeypatch.undo()

    def test_a_lock_removed_by_its_last_holder_is_not_taken_for_the_new_one(
        self, tmp_path: Path
    ) -> None:
        place = tmp_path / "lock"
        with place.open("w") as old, held(place, remove=True) as first:
            assert first is not None
            assert os.path.samestat(os.fstat(old.fileno()), os.fstat(first.fileno()))
            place.unlink()
            with held(place) as second:
                assert second is not None
                assert os.path.samestat(os.fstat(second.fileno()), place.stat())

    def test_without_locks_a_run_goes_on_with_a_warning(
        self,
        digits: Task,
        out: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        monkeypatch.setattr(claim, "held", fail)
        with claimed(RunFolder(out), digits.config(out), resume=False):
            assert "cannot be locked: let no other run write there" in caplog.text

    @pytest.mark.slow
    def test_of_two_commands_at_once_one_runs_and_the_other_is_refused(
        self, digits: Task, out: Path
    ) -> None:
        commands = [[*UNIDA, "adapt", *digits.arguments(out, seed=seed)] for seed in (1, 2)]
        with started(commands[0]) as one, started(commands[1]) as two:
            statuses = [one.ended(), two.ended()]
            assert sorted(statuses) == [0, 2]
            ran, refused = (one, two) if statuses[0] == 0 else (two, one)
            assert " is in use by process " in refused.output()
            assert f"process {ran.process.pid} on " in refused.output()
        config = json.loads((out / "config.json").read_text())
        assert config["run"]["optim"]["seed"] == 1 + statuses.index(0)
        lines = (out / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == [5, 10, 15, 20]

    @pytest.mark.slow
    def test_of_two_resumes_one_is_refused_and_a_kill_releases_the_folder(
        self, digits: Task, out: Path, capfd: Capture
    ) -> None:
        many = digits.arguments(out, steps=3000)
        with started([*UNIDA, "adapt", *many]) as first:
            wait_for((out / "state.pt").exists, first)
            first.kill()
        assert RunFolder(out).lock.exists()
        resume = ["adapt", "--out", str(out), "--resume"]
        before = (out / "state.pt").stat().st_mtime_ns
        with started([*UNIDA, *resume]) as second:
            wait_for(lambda: (out / "state.pt").stat().st_mtime_ns > before, second)
            assert main(resume) == 2
            assert f"process {second.process.pid} on " in capfd.readouterr().err
            assert second.status() is None


class TestLeftovers:
    def test_a_kill_while_the_configuration_is_written_does_not_block_the_folder(
        self, digits: Task, out: Path
    ) -> None:
        out.mkdir()
        for name in (".config.json.part", ".config.json.0a1b2c3d.part", ".lock"):
            (out / name).write_text("{")
        run_adaptation(digits.config(out, steps=1))
        assert not list(out.glob(".*"))

    def test_parts_of_a_killed_run_go_when_it_goes_on(self, digits: Task, out: Path) -> None:
        run, config = RunFolder(out), digits.config(out, steps=1)
        with claimed(run, config, resume=False):
            run.begin(config)
        member = out / "member-1"
        member.mkdir()
        parts = {out / ".state.pt.part", member / ".state.pt.12.part"}
        others = {out / ".thesis.tex.part", out / "state.pt.part"}
        for file in parts | others:
            file.touch()
        assert set(leftovers(run)) == parts
        run_adaptation(config, resume=True)
        assert {file for file in parts | others if file.exists()} == others

    def test_a_folder_with_other_hidden_files_is_not_free(self, digits: Task, out: Path) -> None:
        out.mkdir()
        (out / ".thesis.tex.part").touch()
        with pytest.raises(UserError, match="not an empty folder"):
            run_adaptation(digits.config(out))

    def test_a_run_without_its_report_gets_it_with_resume(self, digits: Task, out: Path) -> None:
        """The run was killed while the report was written, before its checkpoint was removed."""
        config = digits.config(out, steps=1, report=True)
        run_adaptation(config)
        run = RunFolder(out)
        run.report.rename(out / ".report.html.part")
        run.state.touch()
        model = run.model.stat().st_mtime_ns
        run_adaptation(config, resume=True)
        assert "<html" in run.report.read_text()[:500]
        assert not leftovers(run)
        assert run.model.stat().st_mtime_ns == model
