"""A bench from the command line: finished once, resumed, shared, and honest about failures."""

import dataclasses
import importlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.bench.benches import arguments, write_data
from tests.processes import UNIDA, started, wait_for
from unida.bench import local_runner
from unida.bench.folder import ResultsFolder
from unida.bench.jobs import Job
from unida.bench.local_runner import _note_if_killed
from unida.bench.results import from_json, read_results, read_runs, to_json, write_results
from unida.bench.run import Bench, planned, progress_table
from unida.bench.scoring import commit_of_code
from unida.bench.worker import Places
from unida.cli.main import main
from unida.errors import UserError
from unida.model import load

N_JOBS = 2 * 2 * 2


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Protocol and results of a whole bench."""
    root = tmp_path_factory.mktemp("bench")
    protocol = write_data(root)
    assert main(arguments(protocol, root / "results", "--oracle")) == 0
    return protocol, root / "results"


def test_every_run_has_its_result(finished: tuple[Path, Path]) -> None:
    results = read_results(finished[1])
    assert len(results) == N_JOBS
    for r in results:
        assert r.images == {"source": 4 * 8, "target": 5 * 8, "unknown": 2 * 8}
        assert r.known_classes == ["0", "1", "2", "3"]
        assert r.shared_classes == ["0", "1", "2"]
        assert r.options["steps"] == 8
        assert (r.options["backbone_lr"], r.options["batch_norm"]) == (1.0, "batch")  # as settled
        assert r.unknown_classes == 2
        assert r.seconds > 0
        assert r.parameters > 1000
        assert set(r.ranking) == {"auroc", "oscr", "nmi", "closed"}
        for rule in r.rules.values():
            counts = np.array(rule.confusion)
            assert counts.shape == (4, 5)
            assert counts.sum() == 40
            recall = counts[[0, 1, 2], [0, 1, 2]] / counts[:3].sum(1)
            assert rule.scores["known"] == pytest.approx(recall.mean())
            assert rule.scores["unknown"] == pytest.approx(counts[3, 4] / 16)


def test_the_oracle_is_the_best_checkpoint_and_named_so(finished: tuple[Path, Path]) -> None:
    for r in read_results(finished[1]):
        assert set(r.oracle) == {"own", "mixture"}
        for rule, best in r.oracle.items():
            assert best["step"] in (4, 8)
            assert best["h"] >= (r.rules[rule].scores["h"] or 0.0) - 1e-9


def test_models_are_not_kept_but_what_figures_need_is(finished: tuple[Path, Path]) -> None:
    for folder in (finished[1] / "runs").iterdir():
        assert not (folder / "model.safetensors").exists()
        arrays = np.load(folder / "scores.npz")
        assert len(arrays["labels"]) == len(arrays["features"]) == 40
        assert len(arrays["source_features"]) == len(arrays["source_labels"]) == 32
        assert arrays["features"].shape[1] == arrays["source_features"].shape[1] <= 50


def test_a_second_bench_does_nothing(
    finished: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    protocol, results = finished
    before = {f: f.stat().st_mtime_ns for f in results.rglob("result.jsonl")}
    assert main(arguments(protocol, results, "--oracle")) == 0
    assert {f: f.stat().st_mtime_ns for f in results.rglob("result.jsonl")} == before
    assert f"{N_JOBS} of {N_JOBS} runs are done already" in capsys.readouterr().err


def test_results_come_back_as_they_were(finished: tuple[Path, Path]) -> None:
    results = read_results(finished[1])
    assert [from_json(to_json(r), "here") for r in results] == results
    assert read_results(finished[1] / "results.jsonl") == results


def test_rules_are_fitted_anew_to_stored_scores(
    finished: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    rescore = importlib.import_module("rescore")
    place = tmp_path / "results"
    shutil.copytree(finished[1], place)
    fresh = read_results(place)
    for folder, old in read_runs(place):
        assert folder is not None
        none = dataclasses.replace(old.rules["mixture"], threshold=-99.0, scores={})
        other = dataclasses.replace(old, rules=old.rules | {"mixture": none})
        write_results(folder / "result.jsonl", [other])
    rescore.main([str(place)])
    again = read_results(place)
    assert {result.made_with.pop("rules") for result in again} == {commit_of_code()}
    assert again == [dataclasses.replace(result, oracle={}) for result in fresh]


def test_models_of_several_seeds_are_scored_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    protocol, place = write_data(tmp_path), tmp_path / "results"
    assert main(arguments(protocol, place, "--methods", "san", "--keep-models")) == 0
    importlib.import_module("together").main([str(place), "--out", str(tmp_path / "joined")])
    one, joined = read_results(place), read_results(tmp_path / "joined")
    assert [(r.task, r.options["ensemble"]) for r in joined] == [
        ("dark → light", 2),
        ("light → dark", 2),
    ]
    assert joined[0].parameters == one[0].parameters + one[1].parameters
    assert joined[0].made_with["seeds joined"] == "0 1"
    models = [load(run) for run in sorted((place / "runs").glob("san_dark*"))]
    images = sorted((tmp_path / "data" / "light").rglob("*.png"))
    images = [image for image in images if image.parent.name != "3"]
    scores = np.mean([model.score(images)[1].unknown_score for model in models], 0)
    rejected = scores[[image.parent.name in "89" for image in images]] >= 0
    assert joined[0].rules["own"].scores["unknown"] == pytest.approx(rejected.mean())


def test_a_result_of_another_format_is_refused(finished: tuple[Path, Path], tmp_path: Path) -> None:
    values = json.loads(to_json(read_results(finished[1])[0]))
    for change, said in (({"format": 0}, "format 0"), ({"extra": 1}, "not a result")):
        file = tmp_path / "results.jsonl"
        file.write_text(json.dumps(values | change) + "\n")
        with pytest.raises(UserError, match=said) as error:
            read_results(file)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "{}", "[1]", "nonsense", "null"])
def test_what_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "results.jsonl"
    file.write_text(text + "\n")
    with pytest.raises(UserError, match=r"no result|not a result"):
        read_results(file)


def test_the_progress_table_counts(finished: tuple[Path, Path]) -> None:
    protocol, results = finished
    jobs = planned(
        Bench(
            str(protocol),
            out=results,
            methods="source_only,san",
            seeds=3,
            option=("steps=8", "device=cpu"),
            oracle=True,
        )
    )
    table = progress_table(jobs, ResultsFolder(results), seconds_left=150)
    assert table.row_count == 2
    assert list(table.columns[1].cells) == ["2/3", "2/3"]
    assert table.caption == "8 done, 4 waiting, about 2 min left"


def test_a_failed_run_is_recorded_and_the_rest_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    protocol = write_data(tmp_path)
    for file in (tmp_path / "data" / "dark" / "3").iterdir():
        file.write_bytes(b"no image")  # a class of one domain cannot be read
    out = tmp_path / "results"
    args = arguments(protocol, out, "--seeds", "1", "--methods", "source_only", steps=2)
    assert main(args) == 2
    assert "1 runs failed" in capsys.readouterr().err
    (failure,) = (out / "failed").iterdir()
    assert "No image of class 3" in json.loads(failure.read_text())["reason"]
    assert [r.source for r in read_results(out)] == ["light"]


def test_a_killed_bench_goes_on_where_it_was(tmp_path: Path) -> None:
    protocol = write_data(tmp_path)
    out, whole = tmp_path / "results", tmp_path / "whole"
    args = ("--methods", "san", "--tasks", "dark-light")
    steps = 100  # so that no run ends between its first checkpoint and the kill
    with started([*UNIDA, *arguments(protocol, out, *args, steps=steps)]) as bench:
        wait_for(lambda: len(list(out.glob("runs/*/state.pt"))) > 0, bench)
        bench.kill()  # and its runs
    assert not list(out.glob("runs/*/result.jsonl"))
    assert main(arguments(protocol, out, *args, steps=steps)) == 0
    assert main(arguments(protocol, whole, *args, steps=steps)) == 0
    for a, b in zip(read_results(out), read_results(whole), strict=True):
        assert a.rules == b.rules
        assert a.ranking == b.ranking
    for log in out.glob("runs/*/metrics.jsonl"):
        seen = [json.loads(line)["step"] for line in log.read_text().splitlines()]
        assert seen == list(range(2, steps + 1, 2))


def test_runs_in_a_row_are_the_same_runs(finished: tuple[Path, Path], tmp_path: Path) -> None:
    protocol, alone = finished
    row = ("--methods", "source_only", "--in-a-row", "4", "--oracle")
    assert main(arguments(protocol, tmp_path / "results", *row)) == 0
    found = read_results(tmp_path / "results")
    same = [r for r in read_results(alone) if r.entry == "source_only"]
    assert [r.rules for r in found] == [r.rules for r in same]
    assert len(list((tmp_path / "results" / "logs").iterdir())) == 3  # rows of two, one and one


def test_near_the_end_every_process_has_some_of_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = planned(Bench("digits", tmp_path, methods="source_only", seeds=6))
    lengths: list[int] = []
    ended: list[Job] = []

    class Ended:
        returncode = 0

        def poll(self) -> int:
            return 0

    def start(row: list[Job], *_: object) -> Ended:
        lengths.append(len(row))
        ended.extend(row)
        return Ended()

    monkeypatch.setattr(local_runner, "_start", start)
    monkeypatch.setattr(local_runner, "_ended", lambda _, job: job in ended)
    places = Places(str(tmp_path), "")
    local_runner.run_local(jobs, places, at_once=2, tell=lambda: None, in_a_row=5)
    assert lengths == [5, 4, 2, 1]
    assert ended == jobs


def test_of_a_row_that_was_killed_one_run_failed(tmp_path: Path) -> None:
    jobs = planned(Bench("digits", tmp_path, methods="source_only", seeds=2))
    folder = ResultsFolder(tmp_path)
    folder.make()
    _note_if_killed(folder, jobs, 137)
    assert [folder.state(job) for job in jobs] == ["failed", *["waiting"] * (len(jobs) - 1)]
    _note_if_killed(folder, jobs, 0)
    assert folder.state(jobs[1]) == "waiting"


def test_a_later_seed_alone_is_the_same_run(tmp_path: Path) -> None:
    three = planned(Bench("digits", tmp_path, methods="source_only", seeds=3))
    third = planned(Bench("digits", tmp_path, methods="source_only", seeds=1, first_seed=2))
    assert third == [job for job in three if job.seed == 2] != []


def test_two_benches_share_a_folder(tmp_path: Path) -> None:
    protocol = write_data(tmp_path)
    out = tmp_path / "results"
    args = arguments(protocol, out, "--methods", "source_only", "--at-once", "1", steps=4)
    with started([*UNIDA, *args]) as one, started([*UNIDA, *args]) as two:
        statuses = (one.ended(), two.ended())
        assert [file.read_text() for file in (out / "failed").iterdir()] == []  # it says why
        assert statuses == (0, 0)
    assert len(read_results(out)) == len(list((out / "runs").iterdir())) == 4
    for log in out.glob("runs/*/metrics.jsonl"):  # none was trained twice
        assert [json.loads(x)["step"] for x in log.read_text().splitlines()] == [2, 4]


def test_label_noise_and_fewer_unknown_classes_are_part_of_a_bench(tmp_path: Path) -> None:
    protocol = write_data(tmp_path)
    out = tmp_path / "results"
    args = ("--methods", "source_only", "--tasks", "dark-light", "--seeds", "1")
    more = ("--noise", "0,0.5", "--unknowns", "1")
    assert main(arguments(protocol, out, *args, *more, steps=2)) == 0
    found = {(r.label_noise, r.unknown_classes, r.images["unknown"]) for r in read_results(out)}
    assert found == {(0.0, 1, 8), (0.5, 1, 8)}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--noise", "1.5"], "noise"),
        (["--noise", "much"], "noise"),
        (["--unknowns", "some"], "unknowns"),
        (["--seeds", "0"], "seeds"),
        (["--first-seed", "-1"], "first_seed"),
        (["--at-once", "0"], "at_once"),
        (["--in-a-row", "0"], "in_a_row"),
        (["--methods", ","], "methods"),
        (["--setting", "upside-down"], "setting"),
        (["--data", "nowhere"], "data"),
    ],
)
def test_a_bad_argument_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], args: list[str], said: str
) -> None:
    protocol = write_data(tmp_path, each=1)
    assert main(arguments(protocol, tmp_path / "results", *args)) == 2
    err = capsys.readouterr().err.strip()
    assert said in err
    assert "\n" not in err
