"""Searching settings: small studies on digits, alone, killed, together, and with the oracle."""

import dataclasses
import json
import sys
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.bench.benches import write_data
from tests.images import read_csv, write_classes
from tests.processes import Child, started, wait_for
from tests.tasks import Task
from unida.bench.results import read_runs
from unida.bench.tables.groups import group_results
from unida.bench.tables.recipes import searched_settings
from unida.bench.tune.options import StudyOptions
from unida.bench.tune.plan import make_plan
from unida.bench.tune.run import criterion_of, run_tune
from unida.bench.tune.space import Choices, Range, parse_space, with_values
from unida.bench.tune.study import Study
from unida.cli.adapt import Adapt
from unida.cli.terminal import logging_to_terminal
from unida.cli.tune import Tune
from unida.config import RunConfig, to_arguments
from unida.errors import UserError
from unida.evaluation.selection import CRITERIA
from unida.methods.presets import configure, load_config
from unida.model import load

pytest.importorskip("optuna")

Capture = pytest.CaptureFixture[str]
GRID = ("lam=0.1,1", "beta=0.5,1")
POINTS = {("0.5", "0.1"), ("0.5", "1"), ("1", "0.1"), ("1", "1")}  # beta, lam


Given = tuple[RunConfig, StudyOptions]


def tuned(task: Task, out: Path, **options: Any) -> Given:
    values = {"steps": 2, "space": GRID, "criterion": "entropy"} | options
    names = {field.name for field in dataclasses.fields(StudyOptions)}
    study = {name: value for name, value in values.items() if name in names}
    run = {name: value for name, value in values.items() if name not in names}
    return task.config(out, **run), StudyOptions(**study)


def run_command(given: Given) -> None:
    """Run the study as the command does, so that what it prints can be read."""
    config, study = given
    with logging_to_terminal():
        dataclasses.replace(Tune.of(config), study=study).execute()


def elsewhere(given: Given) -> AbstractContextManager[Child]:
    """The same study in a process of its own."""
    config, study = given
    words = [*to_arguments(config), "--space", *study.space, "--criterion", study.criterion or ""]
    words += ["--trials", str(study.trials)] if study.trials else []
    return started([sys.executable, "-m", "unida", "tune", *words])


def points(out: Path) -> Counter[tuple[str, str]]:
    return Counter((row["beta"], row["lam"]) for row in read_csv(out / "trials.csv"))


@pytest.fixture(scope="module")
def grid(digits: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study."""
    out = tmp_path_factory.mktemp("grid") / "study"
    run_tune(*tuned(digits, out))
    return out


class TestGrid:
    def test_every_point_is_tried_once(self, grid: Path) -> None:
        assert points(grid) == dict.fromkeys(POINTS, 1)
        for row in read_csv(grid / "trials.csv"):
            run = json.loads((grid / row["run"] / "config.json").read_text())
            settings = run["run"]["settings"]
            assert settings["beta"] == float(row["beta"])
            assert settings["lam"] == float(row["lam"])
            assert (grid / row["run"] / "done").exists()
            assert row["state"] == "finished"

    def test_the_best_has_the_largest_value_and_its_criterion(self, grid: Path) -> None:
        best = json.loads((grid / "best.json").read_text())
        rows = read_csv(grid / "trials.csv")
        assert best["value"] == max(float(row["entropy"]) for row in rows)
        row = rows[best["trial"]]
        assert best["values"] == {"beta": row["beta"], "lam": row["lam"]}
        assert best["chosen"] == "label-free: entropy"
        assert best["trials"] == {"finished": 4, "failed": 0, "running": 0}
        assert not [path for path in grid.rglob("*") if "oracle" in path.name]

    def test_the_command_it_names_is_that_run(self, grid: Path, digits: Task) -> None:
        best = json.loads((grid / "best.json").read_text())
        words = best["command"].split()
        assert words[:2] == ["unida", "adapt"]
        chosen = Adapt.parse("adapt", words[2:]).config()
        stored = load_config(grid / best["run"] / "config.json")
        assert chosen.settings == stored.settings
        assert chosen.data.source == str(digits.source)
        assert (chosen.optim.steps, chosen.data.flip) == (2, False)

    def test_a_finished_study_is_shown_and_not_repeated(
        self, grid: Path, digits: Task, capfd: Capture
    ) -> None:
        before = {p: p.stat().st_mtime_ns for p in (grid / "trials").rglob("*")}
        run_command(tuned(digits, grid))
        captured = capfd.readouterr()
        assert "san, label-free: entropy" in captured.out
        assert "unida adapt" in captured.err
        assert before == {p: p.stat().st_mtime_ns for p in (grid / "trials").rglob("*")}

    def test_another_study_is_kept_out_of_the_folder(self, grid: Path, digits: Task) -> None:
        for options in ({"steps": 3}, {"space": ("lam=0.1,1",)}, {"criterion": "separation"}):
            with pytest.raises(UserError, match="holds another study"):
                run_tune(*tuned(digits, grid, **options))
        with pytest.raises(UserError, match="holds another study"):
            run_tune(*tuned(digits, grid, criterion=None, oracle=True, labels=digits.target))


def test_a_part_of_the_grid_now_and_the_rest_later(digits: Task, out: Path) -> None:
    for trials, n in ((1, 1), (99, 2)):
        run_tune(*tuned(digits, out, space=("beta=0.5,1", "lam=1"), trials=trials))
        assert sum(points(out).values()) == n
    assert points(out) == {("0.5", "1"): 1, ("1", "1"): 1}


def test_a_killed_study_resumes(digits: Task, out: Path) -> None:
    """The trial that was cut off goes on from its checkpoint, under its own number."""
    given = tuned(digits, out, steps=200, checkpoint_every=3, space=("lam=0.1,1",), trials=1)
    with elsewhere(given) as study:
        wait_for((out / "trials/000/state.pt").exists, study)
        study.kill()
    assert not (out / "trials/000/done").exists()  # so the kill came in time
    begun = (out / "trials/000/config.json").stat().st_mtime_ns

    run_tune(*given)
    assert (out / "trials/000/config.json").stat().st_mtime_ns == begun
    assert [row["state"] for row in read_csv(out / "trials.csv")] == ["finished"]
    lines = (out / "trials/000/metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["step"] == 200


def has_text(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def test_two_processes_share_the_grid(digits: Task, out: Path) -> None:
    given = tuned(digits, out, steps=10)
    with elsewhere(given) as other:
        wait_for(lambda: has_text(out / "locks/000"), other)  # it has taken its first trial
        run_tune(*given)
        assert other.ended() == 0
    assert points(out) == dict.fromkeys(POINTS, 1)
    # Each was taken once; who took how many hangs on which process is the faster.
    takers = [(out / "locks" / f"{n:03}").read_text().splitlines() for n in range(4)]
    assert [len(lines) for lines in takers] == [1] * 4


def test_machines_without_a_common_folder_share_a_storage(digits: Task, tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    one, two = tmp_path / "one", tmp_path / "two"
    space = ("beta=0.5,1", "lam=1")
    run_tune(*tuned(digits, one, space=space, storage=storage, trials=1))
    run_tune(*tuned(digits, two, space=space, storage=storage))
    assert [path.name for path in (one / "trials").iterdir()] == ["000"]
    assert [path.name for path in (two / "trials").iterdir()] == ["001"]
    assert points(two) == {("0.5", "1"): 1, ("1", "1"): 1}


def test_a_process_without_a_free_trial_reports_it(
    digits: Task, tmp_path: Path, capfd: Capture
) -> None:
    storage = str(tmp_path / "journal.log")
    given = tuned(digits, tmp_path / "out", space=("lam=1",), storage=storage)
    plan = make_plan(*given)
    elsewhere = Study(storage, plan.name, plan.definition, plan.space, "grid", 0)
    next(elsewhere.take(1, tmp_path))
    run_command(given)
    assert "1 of the trials run in other processes" in capfd.readouterr().err
    assert not (tmp_path / "out/best.json").exists()


class TestStudy:
    """The parts without training: who may take which trial."""

    space = {"x": Choices(("1", "2", "3"))}  # noqa: RUF012

    def study(self, folder: Path, **options: Any) -> Study:
        values: dict[str, Any] = {"space": self.space, "sampler": "grid", "seed": 0}
        return Study(str(folder / "journal.log"), "s", {"a": 1}, **(values | options))

    def test_a_trial_that_runs_elsewhere_is_left_alone_unless_retaken(self, tmp_path: Path) -> None:
        here, there = tmp_path / "here", tmp_path / "there"
        for folder in (here, there):
            folder.mkdir()
        study = self.study(tmp_path)
        first, _ = next(study.take(3, there))  # and never answered
        assert [n for n, _ in self.answered(self.study(tmp_path), here)] == [1, 2]
        retaken = list(self.answered(self.study(tmp_path), here, retake=True))
        assert [n for n, _ in retaken] == [first]
        assert {row.state for row in study.trials()} == {"finished"}

    def answered(self, study: Study, locks: Path, retake: bool = False) -> Any:
        for number, values in study.take(3, locks, retake):
            study.finish(number, 0.5)
            yield number, values

    def test_the_values_of_a_trial_follow_from_its_number(self, tmp_path: Path) -> None:
        options = {"space": {"x": Range(0.0, 1.0), "k": Range(1, 9, whole=True)}}
        trials = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            study = self.study(tmp_path / name, sampler="random", **options)
            trials.append(list(self.answered(study, tmp_path / name)))
        assert trials[0] == trials[1]
        assert len({values["x"] for _, values in trials[0]}) == 3
        assert all(isinstance(values["k"], int) for _, values in trials[0])

    def test_a_study_of_the_same_name_must_be_the_same(self, tmp_path: Path) -> None:
        self.study(tmp_path)
        with pytest.raises(UserError, match="other settings \\(a=1\\)"):
            Study(str(tmp_path / "journal.log"), "s", {"a": 2}, self.space, "grid", 0)

    def test_a_storage_that_is_none_is_one_sentence(self, tmp_path: Path) -> None:
        (tmp_path / "journal.log").write_text("no journal\n" * 3)
        with pytest.raises(UserError, match="not a journal of Optuna"):
            self.study(tmp_path)
        with pytest.raises(UserError, match="cannot be used"):
            self.study(tmp_path / "missing")
        with pytest.raises(UserError, match="database") as error:
            Study("nobase://user:secret@host/x", "s", {}, self.space, "grid", 0)
        assert "secret" not in str(error.value)


class TestCriteria:
    def test_source_validation_trains_without_the_hidden_classes(
        self, digits: Task, out: Path
    ) -> None:
        run_tune(*tuned(digits, out, space=("lam=1",), criterion=None))
        trained = {row["label"] for row in read_csv(out / "split/train.csv")}
        validated = {row["label"] for row in read_csv(out / "split/validation.csv")}
        assert validated == {"0", "1", "2", "3"}
        assert len(trained) == 3
        config = json.loads((out / "trials/000/config.json").read_text())["run"]
        assert config["data"]["source"] == str(out / "split/train.csv")
        best = json.loads((out / "best.json").read_text())
        assert best["chosen"] == "label-free: source_validation"
        assert f"--source {digits.source}" in best["command"]

    def test_the_oracle_is_named_everywhere(self, digits: Task, out: Path, capfd: Capture) -> None:
        oracle = {"criterion": None, "oracle": True, "labels": digits.target}
        run_command(tuned(digits, out, space=("lam=1",), **oracle))
        captured = capfd.readouterr()
        assert "san, oracle" in captured.out
        assert "oracle (H by target labels" in captured.err
        assert {p.name for p in out.iterdir() if p.is_file()} == {
            "oracle-study.json",
            "oracle-journal.log",
            "oracle-trials.csv",
            "oracle-best.json",
        }
        assert [p.name for p in (out / "trials").iterdir()] == ["oracle-000"]
        best = json.loads((out / "oracle-best.json").read_text())
        assert best["chosen"] == "oracle"
        assert "oracle" in best["study"]
        assert "oracle" in best["command"]
        assert "oracle" in read_csv(out / "oracle-trials.csv")[0]

    def test_a_name_given_to_an_oracle_study_is_marked(self, digits: Task, out: Path) -> None:
        given = tuned(
            digits, out, criterion=None, oracle=True, labels=digits.target, study="best ever"
        )
        assert make_plan(*given).name == "oracle-best ever"

    def test_target_labels_are_not_used(self, digits: Task, tmp_path: Path) -> None:
        """The same images without class folders give the same value."""
        flat = tmp_path / "flat"
        flat.mkdir()
        for number, path in enumerate(sorted(digits.target.rglob("*.png"))):
            (flat / f"{number:03}.png").write_bytes(path.read_bytes())
        names = [name for name, c in CRITERIA.items() if c.images == "target"]
        values = []
        for target in (digits.target, flat):
            out = tmp_path / f"study of {target.name}"
            given = tuned(Task(digits.source, target), out, space=("lam=1",))
            run_tune(*given)
            model, plan = load(out / "trials/000"), make_plan(*given)
            plans = [dataclasses.replace(plan, criterion=name) for name in names]
            values.append([criterion_of(model, plan) for plan in plans])
        assert values[0] == values[1]
        assert len(values[0]) >= 3


class TestFailure:
    def test_a_failed_trial_is_noted_and_the_study_goes_on(
        self, digits: Task, out: Path, capfd: Capture
    ) -> None:
        run_command(tuned(digits, out, steps=5, space=("lr=1e30,0.01",)))
        rows = {row["lr"]: row for row in read_csv(out / "trials.csv")}
        assert rows["1e30"]["state"] == "failed"
        assert "diverged" in rows["1e30"]["reason"]
        assert rows["0.01"]["state"] == "finished"
        assert json.loads((out / "best.json").read_text())["values"] == {"lr": "0.01"}
        assert "failed" in capfd.readouterr().out

    def test_if_all_fail_the_reason_is_reported(self, digits: Task, out: Path) -> None:
        with pytest.raises(UserError, match="No trial has finished: Training diverged"):
            run_tune(*tuned(digits, out, steps=5, space=("lr=1e30",)))

    def test_a_folder_with_something_else_in_it_is_left_alone(
        self, digits: Task, tmp_path: Path
    ) -> None:
        (tmp_path / "letter.txt").write_text("dear")
        with pytest.raises(UserError, match="not an empty folder"):
            run_tune(*tuned(digits, tmp_path))
        assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]

    def test_two_classes_cannot_be_validated_on_the_source(
        self, digits: Task, tmp_path: Path
    ) -> None:
        source = write_classes(tmp_path / "source", {"a": 3, "b": 3})
        with pytest.raises(UserError, match="three or more"):
            run_tune(*tuned(Task(source, digits.target), tmp_path / "out", criterion=None))

    def test_without_optuna_the_message_names_the_extra(
        self, digits: Task, out: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "optuna", None)
        with pytest.raises(UserError, match=r"extra 'tune'.: pip install optuna"):
            run_tune(*tuned(digits, out))


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no such field": ({"space": ("lamb=1,2",)}, "a field of space is 'lamb'; allowed: lam, beta"),
    "the seed": ({"space": ("seed=1,2",)}, "a field of space is 'seed'"),
    "no values": ({"space": ("lam=",)}, "space is 'lam='"),
    "no sign": ({"space": ("lam",)}, "space is 'lam'"),
    "no number": ({"space": ("lam=1,few",)}, "lam is 'few'; allowed: a value of type float"),
    "an empty value": ({"space": ("lam=1,,2",)}, "lam is ''"),
    "a refused value": ({"space": ("alpha=0.5,7",)}, "alpha is 7.0; allowed: from 0 to 1"),
    "a refused option": ({"space": ("batch=1,8",)}, "batch is 1; allowed: 2 or more"),
    "a value twice": ({"space": ("lam=1,1.0",)}, "each value once"),
    "a field twice": ({"space": ("lam=1", "lam=2")}, "each field once"),
    "a field that is set": ({"space": ("lam=1,2",), "settings": ("lam=1",)}, "both in --set"),
    "a range downwards": ({"space": ("lam=2..1",), "sampler": "tpe"}, "LOW below HIGH"),
    "factors from zero": ({"space": ("lam=0..1:log",), "sampler": "tpe"}, "LOW above 0"),
    "no such scale": ({"space": ("lam=0..1:lin",), "sampler": "tpe"}, ":log after a range"),
    "a range in a grid": ({"space": ("lam=0..1",)}, "lam is the range 0..1"),
    "no default grid": ({"space": (), "method": "ovanet"}, "space is ''; allowed: FIELD=A,B,C"),
    "no such criterion": ({"criterion": "luck"}, "criterion is 'luck'"),
    "the oracle by the back door": ({"criterion": "oracle"}, "or --oracle"),
    "an oracle without labels": ({"criterion": None, "oracle": True}, "--labels"),
    "labels without the oracle": ({"labels": Path("x")}, "only with --oracle"),
    "oracle and criterion": ({"oracle": True, "labels": Path("x")}, "leave --criterion out"),
    "no such sampler": ({"sampler": "luck"}, "sampler is 'luck'; allowed: grid, tpe, random"),
    "no trials": ({"trials": 0}, "trials is 0"),
    "no source": ({"source": ""}, "source is ''"),
}


def test_bad_input_is_one_sentence(digits: Task, out: Path) -> None:
    for case, (options, sentence) in BAD.items():
        with pytest.raises(UserError) as error:
            run_tune(*tuned(digits, out, **options))
        assert sentence in str(error.value), case
        assert not out.exists(), case


class TestSpace:
    def test_every_form(self) -> None:
        texts = ("lam=0.1, 1", "contrast=none,scaled", "alpha=0..1", "lr=1e-4..1e-1:log")
        space = parse_space((*texts, "top_n=2..30"), RunConfig())
        assert space == {
            "lam": Choices(("0.1", "1")),
            "contrast": Choices(("none", "scaled")),
            "alpha": Range(0.0, 1.0),
            "lr": Range(1e-4, 1e-1, log=True),
            "top_n": Range(2, 30, whole=True),
        }

    def test_two_dots_in_a_path_are_no_range(self) -> None:
        space = parse_space(("weights=../a.pt,../b.pt",), RunConfig())
        assert space == {"weights": Choices(("../a.pt", "../b.pt"))}

    def test_by_default_san_is_searched_as_in_the_paper(self) -> None:
        assert set(parse_space((), RunConfig())) == {"lam", "beta", "alpha"}

    def test_values_go_where_they_belong(self) -> None:
        config = configure(settings=("alpha=0",))
        changed = with_values(config, {"lam": "0.3", "lr": "0.1", "flip": "false"})
        assert changed == configure(settings={"alpha": 0.0, "lam": 0.3}, lr=0.1, flip=False)

    def test_a_name_that_method_and_run_share_is_the_methods(self) -> None:
        config = with_values(configure("dance"), {"momentum": "0.5"})
        assert config.settings.momentum == 0.5
        assert config.optim.momentum == RunConfig().optim.momentum


def test_tpe_searches_ranges(digits: Task, out: Path) -> None:
    run_tune(*tuned(digits, out, space=("beta=0.1..1", "steps=2..3"), sampler="tpe", trials=2))
    rows = read_csv(out / "trials.csv")
    assert len(rows) == 2
    assert all(0.1 <= float(row["beta"]) <= 1 and row["steps"] in "23" for row in rows)


def test_the_command_line_is_understood(tmp_path: Path) -> None:
    args = "--source a --target b --out c --space lam=1,2 lr=0.1..1:log --steps 9 --oracle"
    args += " --labels d --set beta=1 --no-flip"
    given = Tune.parse("tune", args.split())
    assert given.study.space == ("lam=1,2", "lr=0.1..1:log")
    assert given.settings == ("beta=1",)
    assert (given.optim.steps, given.data.flip) == (9, False)
    assert (given.study.oracle, given.study.labels) == (True, Path("d"))


# --- a task of a benchmark: SAN※


@pytest.fixture(scope="module")
def small_task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("small"))


def star(protocol: Path, out: Path, *more: str) -> list[str]:
    words = ["--protocol", str(protocol), "--task", "dark-light", "--out", str(out)]
    words += ["--root", str(protocol.parent / "data"), "--space", "lam=0.1,1", "--steps", "4"]
    return [*words, "--device", "cpu", "--no-report", *more]


def test_the_outcome_of_a_study_on_a_task_is_a_row_of_tables(
    small_task: Path, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    for task in ("dark-light", "light-dark"):
        words = star(small_task, tmp_path / task, "--oracle", "--results", str(results))
        words[words.index("dark-light")] = task
        Tune.parse("tune", words).execute()
    found = sorted(read_runs(results), key=lambda run: run.result.task)
    runs = [run for run in found if run.result.refine == "none"]
    assert [run.result.task for run in runs] == ["dark → light", "light → dark"]
    for run in runs:
        study = tmp_path / run.result.task.replace(" → ", "-")
        best = json.loads((study / "oracle-best.json").read_text())
        assert run.result.entry == "SAN※, oracle"
        assert run.result.settings["lam"] == float(best["values"]["lam"])
        assert f"lam={best['values']['lam']}" in run.result.made_with["settings chosen"]
    # One row, although the settings may differ from task to task.
    lam = iter((0.1, 1.0))
    torn = [
        dataclasses.replace(r.result, settings=r.result.settings | {"lam": next(lam)}) for r in runs
    ]
    (group,) = group_results(torn)
    assert [line.label for line in group.lines] == ["SAN※, oracle"]
    assert any("target labels" in note for note in searched_settings(group.lines))


def test_a_label_free_study_on_a_task_says_so_and_sees_no_label(
    small_task: Path, tmp_path: Path
) -> None:
    given = Tune.parse("tune", star(small_task, tmp_path / "study", "--criterion", "entropy"))
    given.execute()
    (row, *_) = read_runs(tmp_path / "study" / "results")
    assert row.result.entry == "SAN※, label-free: entropy"
    assert row.result.options["batch"] == 8, "of the protocol"
    assert not [path for path in (tmp_path / "study").rglob("*") if "oracle" in path.name]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "all"}, "task"),
        ({"task": ""}, "task"),
        ({"task": "dark-dusk"}, "dark-light"),
        ({"root": Path("nowhere")}, "root"),
        ({"root": None}, "root"),
        ({"setting": "oda"}, "unda"),
        ({"labels": Path("x")}, "labels"),
        ({"protocol": None}, "only with --protocol"),
    ],
    ids=str,
)
def test_a_bad_task_is_one_sentence(
    small_task: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    given = Tune.parse("tune", star(small_task, tmp_path / "study"))
    study = dataclasses.replace(given.study, **change)
    with pytest.raises(UserError, match=message) as error:
        run_tune(given.config(), study)
    assert "\n" not in str(error.value)


def test_a_study_on_a_data_set_begins_with_what_the_authors_ran() -> None:
    words = "--protocol office-home --task Art-Product --root r --out o --space tau=0.1,0.2"
    given = Tune.parse("tune", [*words.split(), "--method", "uniot", "--steps", "9"])
    config = given.config()
    assert (config.settings.K, config.optim.steps, config.optim.batch) == (150, 9, 36)
