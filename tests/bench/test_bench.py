"""A bench from the command line: finished once, resumed, shared, and honest about failures."""

import importlib
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bench.benches import arguments, write_data
from tests.processes import UNIDA, started, wait_for
from unida.bench import local_runner
from unida.bench.folder import Preparation, ResultsFolder
from unida.bench.jobs import Job
from unida.bench.local_runner import _record_if_killed
from unida.bench.results import (
    Result,
    compact,
    from_json,
    gather,
    read_results,
    to_json,
    write_results,
)
from unida.bench.scoring import commit_of_code
from unida.bench.worker import Places, work
from unida.cli.bench import Bench, progress_table
from unida.cli.main import main
from unida.errors import UserError
from unida.model import load
from unida.utils.locks import is_held

N_JOBS = 2 * 2 * 2


@pytest.fixture(scope="module")
def protocol(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small data set, shared by the tests that do not change it."""
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def finished(protocol: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a whole bench, by two processes with several runs each."""
    out = tmp_path_factory.mktemp("bench") / "results"
    assert main(arguments(protocol, out, "--oracle", "--runs-per-worker", "4")) == 0
    return out


def run_here(protocol: Path, out: Path, steps: int = 8, **options: Any) -> list[Result]:
    """Run jobs of `unida bench` in this process, which spares the start of another one."""
    given = Bench(str(protocol), out=out, option=(f"steps={steps}", "device=cpu"), **options)
    keep = given.keep_models
    for job in given.jobs():
        assert work(job, Places(str(out), str(protocol.parent / "data"), keep))
    return read_results(out)


def test_every_run_has_its_result(finished: Path) -> None:
    results = read_results(finished)
    assert sum(r.refine == "none" for r in results) == N_JOBS
    assert {r.row for r in results} >= {"san", "san + knn", "source_only"}
    for r in results:
        assert r.images == {"source": 4 * 8, "target": 5 * 8, "unknown": 2 * 8}
        assert r.known_classes == ["0", "1", "2", "3"]
        assert r.shared_classes == ["0", "1", "2"]
        assert r.options["steps"] == 8
        assert (r.options["backbone_lr"], r.options["batch_norm"]) == (1.0, "batch")  # as resolved
        assert r.unknown_classes == 2
        assert r.seconds > 0
        assert r.parameters > 1000
        assert set(r.ranking) == {"auroc", "oscr", "nmi", "closed", "best_threshold"}
        for rule in r.rules.values():
            counts = np.array(rule.confusion)
            assert counts.shape == (4, 5)
            assert counts.sum() == 40
            recall = counts[[0, 1, 2], [0, 1, 2]] / counts[:3].sum(1)
            assert rule.scores["known"] == pytest.approx(recall.mean())
            assert rule.scores["unknown"] == pytest.approx(counts[3, 4] / 16)


def test_the_oracle_is_the_best_checkpoint_and_named_so(finished: Path) -> None:
    for r in read_results(finished):
        assert set(r.oracle) == {"share", "own", "mixture", "none"}
        for rule, best in r.oracle.items():
            assert best["step"] in (4, 8)
            assert best["h"] >= (r.rules[rule].scores["h"] or 0.0) - 1e-9


def test_models_are_not_kept_but_what_figures_need_is(finished: Path) -> None:
    for folder in (finished / "runs").iterdir():
        assert not (folder / "model.safetensors").exists()
        arrays = np.load(folder / "scores.npz")
        assert len(arrays["labels"]) == len(arrays["features"]) == 40
        assert len(arrays["source_features"]) == len(arrays["source_labels"]) == 32
        assert arrays["features"].shape[1] == arrays["source_features"].shape[1] <= 50


def test_a_second_bench_does_nothing(
    protocol: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {f: f.stat().st_mtime_ns for f in finished.rglob("result.jsonl")}
    assert main(arguments(protocol, finished, "--oracle")) == 0
    assert {f: f.stat().st_mtime_ns for f in finished.rglob("result.jsonl")} == before
    assert f"{N_JOBS} of {N_JOBS} runs are done already" in capsys.readouterr().err


def test_results_come_back_as_they_were(finished: Path) -> None:
    results = read_results(finished)
    assert [from_json(to_json(r), "here") for r in results] == results


def test_the_list_of_all_results_is_compressed_and_has_a_confusion_matrix_each(
    finished: Path, tmp_path: Path
) -> None:
    results = read_results(finished)
    listed = read_results(finished / "results.jsonl.gz")
    assert listed == [compact(result) for result in results]
    for result, whole in zip(listed, results, strict=True):
        (kept,) = (name for name, rule in result.rules.items() if rule.confusion)
        assert kept == result.options["reject"]
        assert result.rules[kept] == whole.rules[kept]
        assert {n: r.scores for n, r in result.rules.items()} == {
            n: r.scores for n, r in whole.rules.items()
        }
    # A folder without runs, as it is committed, and the list of an earlier version.
    for name in ("results.jsonl.gz", "results.jsonl"):
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        write_results(folder / name, listed)
        assert read_results(folder) == listed
    packed = (tmp_path / "results-jsonl-gz" / "results.jsonl.gz").read_bytes()
    assert packed == (finished / "results.jsonl.gz").read_bytes()
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(packed[:100])
    with pytest.raises(UserError, match=r"cut\.jsonl\.gz cannot be read"):
        read_results(cut)


def test_a_list_of_an_earlier_version_gives_way(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / "runs", tmp_path / "runs")
    (tmp_path / "results.jsonl").write_text("out of date\n")
    gather(tmp_path)
    assert not (tmp_path / "results.jsonl").exists()
    assert len(read_results(tmp_path)) == len(read_results(finished))


@pytest.fixture(scope="module")
def kept(protocol: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of two seeds with their models."""
    out = tmp_path_factory.mktemp("kept") / "results"
    run_here(protocol, out, methods="san", tasks="dark-light", seeds=2, keep_models=True)
    return out


def script(monkeypatch: pytest.MonkeyPatch, name: str) -> Any:
    """A module of `benchmarks/scripts`."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks" / "scripts"))
    return importlib.import_module(name)


def test_rules_are_fitted_anew_to_kept_models(
    protocol: Path, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch, "rescore").main([str(kept), str(tmp_path), "--protocol", str(protocol)])
    again, fresh = read_results(tmp_path), read_results(kept)
    assert {result.made_with.pop("rules") for result in again} == {commit_of_code()}
    assert [(r.row, r.seed, r.options) for r in again] == [
        (r.row, r.seed, r.options) for r in fresh
    ]
    for one, other in zip(again, fresh, strict=True):
        assert one.ranking == pytest.approx(other.ranking, nan_ok=True)
        for name, rule in one.rules.items():
            assert rule.threshold == pytest.approx(other.rules[name].threshold, abs=1e-4)
            assert rule.scores == pytest.approx(other.rules[name].scores)


def test_models_of_several_seeds_are_scored_as_one(
    protocol: Path, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch, "ensemble").main([str(kept), "--out", str(tmp_path / "joined")])
    of = {result.refine: result for result in read_results(tmp_path / "joined")}
    assert of.keys() == {"none", "knn"}
    joined = of["knn"]
    assert (joined.task, joined.options["ensemble"]) == ("dark → light", 2)
    refined = [r.parameters for r in read_results(kept) if r.refine == "knn"]
    assert joined.parameters == sum(refined)
    assert joined.made_with["seeds joined"] == "0 1"
    models = [load(run) for run in sorted((kept / "runs").iterdir())]
    images = sorted((protocol.parent / "data" / "light").rglob("*.png"))
    images = [image for image in images if image.parent.name != "3"]
    scores = np.mean([model.score(images)[1].unknown_score for model in models], 0)
    rejected = scores[[image.parent.name in "89" for image in images]] >= 0
    assert joined.rules["own"].scores["unknown"] == pytest.approx(rejected.mean())
    assert joined.rules.keys() == {"share", "own", "mixture", "none"}
    assert "no features" not in joined.rules["share"].note


def test_what_is_no_result_is_refused(finished: Path, tmp_path: Path) -> None:
    values = json.loads(to_json(read_results(finished)[0]))
    changed = [json.dumps(values | change) for change in ({"format": 0}, {"extra": 1})]
    for text in (*changed, "", "{}", "[1]", "nonsense", "null"):
        file = tmp_path / "results.jsonl"
        file.write_text(text + "\n")
        with pytest.raises(UserError, match=r"format 0|no result|not a result") as error:
            read_results(file)
        assert "\n" not in str(error.value)


def test_the_progress_table_counts(protocol: Path, finished: Path) -> None:
    jobs = Bench(
        str(protocol),
        out=finished,
        methods="source_only,san",
        seeds=3,
        option=("steps=8", "device=cpu"),
        oracle=True,
    ).jobs()
    table = progress_table(jobs, ResultsFolder(finished), seconds_left=150)
    assert table.row_count == 2
    assert list(table.columns[1].cells) == ["2/3", "2/3"]
    assert table.caption == "8 done, 4 waiting, about 2 min left"


def test_what_a_run_does_before_its_training_is_shown(tmp_path: Path) -> None:
    (job, *_) = Bench("digits", out=tmp_path, methods="source_only", seeds=1).jobs()
    folder = ResultsFolder(tmp_path)
    folder.make()
    shown = Preparation(folder.doing(job))
    shown.task("san")(1, 2)
    assert folder.preparation(job) == ""
    update = shown.task("embedding target")
    update(64, 640, "16.1 images/s")
    assert folder.preparation(job) == "embedding target 64/640, 16.1 images/s"
    assert progress_table([job], folder, None).caption == "1 waiting"
    with folder.lock(job.name):
        caption = progress_table([job], folder, None).caption
    assert f"{job.name}: embedding target 64/640, 16.1 images/s" in str(caption)
    update(640, 640)
    assert folder.preparation(job) == ""


def test_a_failed_run_is_recorded_and_the_rest_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    protocol = write_data(tmp_path)
    for file in (tmp_path / "data" / "dark" / "3").iterdir():
        file.write_bytes(b"no image")  # a class of one domain cannot be read
    out = tmp_path / "results"
    args = ("--seeds", "1", "--methods", "source_only", "--runs-per-worker", "2")
    assert main(arguments(protocol, out, *args, "--workers", "1", steps=2)) == 2
    assert "1 runs failed" in capsys.readouterr().err
    (failure,) = (out / "failed").iterdir()
    assert "No image of class 3" in json.loads(failure.read_text())["reason"]
    assert {(r.source, r.refine) for r in read_results(out)} == {
        ("light", "none"),
        ("light", "knn"),
    }


def test_a_killed_bench_goes_on_where_it_was(protocol: Path, tmp_path: Path) -> None:
    out, whole = tmp_path / "results", tmp_path / "whole"
    steps = 100  # so that the run does not end between its first checkpoint and the kill
    one = ("--methods", "san", "--tasks", "dark-light", "--seeds", "1")
    with started([*UNIDA, *arguments(protocol, out, *one, steps=steps)]) as bench:
        wait_for(lambda: len(list(out.glob("runs/*/state.pt"))) > 0, bench)
        bench.kill()  # and its run
    assert not list(out.glob("runs/*/result.jsonl"))
    for place in (out, whole):  # both in processes with as many threads
        assert main(arguments(protocol, place, *one, steps=steps)) == 0
    for resumed, uninterrupted in zip(read_results(out), read_results(whole), strict=True):
        assert resumed.rules == uninterrupted.rules
        assert resumed.ranking == uninterrupted.ranking
    (log,) = out.glob("runs/*/metrics.jsonl")
    logged = [json.loads(line)["step"] for line in log.read_text().splitlines()]
    assert logged == list(range(2, steps + 1, 2))


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGKILL"])
def test_workers_end_with_the_bench(protocol: Path, tmp_path: Path, name: str) -> None:
    """The signal reaches the bench alone; its worker would train for hours."""
    if signal.getsignal(getattr(signal, name)) is signal.SIG_IGN:
        pytest.skip("the tests were started with nohup, which processes inherit")
    one = ("--methods", "source_only", "--tasks", "dark-light", "--seeds", "1")
    command = arguments(protocol, tmp_path / "results", *one, steps=1_000_000)
    with started([*UNIDA, *command]) as bench:
        wait_for(lambda: len(list(tmp_path.glob("results/runs/*/state.pt"))) == 1, bench)
        (lock,) = (path for path in tmp_path.glob("results/locks/*") if is_held(path))
        os.kill(bench.process.pid, getattr(signal, name))
        bench.ended()
        wait_for(lambda: not is_held(lock))


def test_a_run_alone_in_a_process_is_the_same_run(
    protocol: Path, finished: Path, tmp_path: Path
) -> None:
    one = ("--methods", "source_only", "--tasks", "dark-light", "--seeds", "1", "--oracle")
    assert main(arguments(protocol, tmp_path / "results", *one)) == 0
    found = read_results(tmp_path / "results")
    same = [
        r
        for r in read_results(finished)
        if (r.entry, r.source, r.seed) == ("source_only", "dark", 0)
    ]
    assert [(r.refine, r.rules) for r in found] == [(r.refine, r.rules) for r in same]
    assert len(found) == 2
    assert len(list((finished / "logs").iterdir())) < N_JOBS  # a log per process


def test_near_the_end_every_process_has_some_of_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = Bench("digits", tmp_path, methods="source_only", seeds=6).jobs()
    lengths: list[int] = []
    ended: list[Job] = []

    class Ended:
        returncode, stdin = 0, None

        def poll(self) -> int:
            return 0

    def start(row: list[Job], *_: object) -> Ended:
        lengths.append(len(row))
        ended.extend(row)
        return Ended()

    monkeypatch.setattr(local_runner, "_start", start)
    monkeypatch.setattr(local_runner, "_ended", lambda _, job: job in ended)
    places = Places(str(tmp_path), "")
    local_runner.run_local(jobs, places, workers=2, report=lambda: None, runs_per_worker=5)
    assert lengths == [5, 4, 2, 1]
    assert ended == jobs


def test_of_a_row_that_was_killed_one_run_failed(tmp_path: Path) -> None:
    jobs = Bench("digits", tmp_path, methods="source_only", seeds=2).jobs()
    folder = ResultsFolder(tmp_path)
    folder.make()
    _record_if_killed(folder, jobs, 137)
    assert [folder.state(job) for job in jobs] == ["failed", *["waiting"] * (len(jobs) - 1)]
    _record_if_killed(folder, jobs, 0)
    assert folder.state(jobs[1]) == "waiting"


def test_a_later_seed_alone_is_the_same_run(tmp_path: Path) -> None:
    three = Bench("digits", tmp_path, methods="source_only", seeds=3).jobs()
    third = Bench("digits", tmp_path, methods="source_only", seeds=1, first_seed=2).jobs()
    assert third == [job for job in three if job.seed == 2] != []


def test_two_benches_share_a_folder(protocol: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    args = ("--methods", "source_only", "--workers", "1", "--seeds", "1")
    command = [*UNIDA, *arguments(protocol, out, *args, steps=4)]
    with started(command) as one, started(command) as two:
        statuses = (one.ended(), two.ended())
        assert [
            file.read_text() for file in (out / "failed").iterdir()
        ] == []  # shown where the test fails
        assert statuses == (0, 0)
    assert len(list((out / "runs").iterdir())) == 2
    assert len(read_results(out)) == 4  # alone and refined
    for log in out.glob("runs/*/metrics.jsonl"):  # none was trained twice
        assert [json.loads(x)["step"] for x in log.read_text().splitlines()] == [2, 4]


def test_label_noise_and_fewer_unknown_classes_are_part_of_a_bench(
    protocol: Path, tmp_path: Path
) -> None:
    job = {"methods": "source_only", "tasks": "dark-light", "seeds": 1}
    results = run_here(protocol, tmp_path, steps=2, noise="0,0.5", unknowns="1", **job)
    found = {(r.label_noise, r.unknown_classes, r.images["unknown"]) for r in results}
    assert found == {(0.0, 1, 8), (0.5, 1, 8)}


def test_a_bad_argument_is_one_sentence(
    protocol: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (
        ("noise", "1.5"), ("noise", "much"), ("unknowns", "some"), ("seeds", "0"),
        ("first-seed", "-1"), ("workers", "0"), ("runs-per-worker", "0"), ("methods", ","),
        ("setting", "upside-down"), ("data", "nowhere"),
    ):  # fmt: skip
        assert main(arguments(protocol, tmp_path / "results", f"--{name}", value)) == 2
        err = capsys.readouterr().err.strip()
        assert name.replace("-", "_") in err
        assert "\n" not in err
