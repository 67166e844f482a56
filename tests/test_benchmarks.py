"""The speed benchmarks run in their smallest form and write what they should; nothing is timed."""

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.images import write_classes, write_folder

FOLDER = Path(__file__).parents[1] / "benchmarks" / "scripts"
MACHINE = {"device", "cores", "threads", "system", "python", "torch", "unida", "commit"}


def run(monkeypatch: pytest.MonkeyPatch, name: str, place: Path, *args: object) -> Any:
    """Run a benchmark and return the rows it writes."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setenv("UNIDA_COMMIT", "abc")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # for children
    out, threads = place / f"{name}.json", torch.get_num_threads()
    words = [str(arg) for arg in (*args, "--device", "cpu", "--threads", 1, "--out", out)]
    try:
        importlib.import_module(name).main(words)
    finally:
        torch.set_num_threads(threads)
    content = json.loads(out.read_text())
    assert content["benchmark"] == name
    assert set(content["machine"]) == MACHINE
    assert content["settings"]["device"] == "cpu"
    return content["results"]


def test_every_script_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--help` of the scripts that no other test runs."""
    for folder, names in (
        (FOLDER, ("beside", "memory", "plain_loop", "start_up", "tables")),
        (FOLDER / "office_home", ("hypotheses", "listing", "ovanet_metric")),
    ):
        monkeypatch.syspath_prepend(str(folder))
        for name in names:
            with pytest.raises(SystemExit) as ended:
                importlib.import_module(name).main(["--help"])
            assert ended.value.code == 0


def test_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = ("--image-size", 8, "--images", 16, "--batch", "4,6", "--steps", 1)
    rows = run(monkeypatch, "step", tmp_path, *small, "--repeats", 2, "--warm-up", 1)
    assert [(row["method"], row["batch"]) for row in rows] == [
        (method, batch) for method in ("san", "ovanet", "dance") for batch in (4, 6)
    ]
    assert [row["images_per_step"] for row in rows] == [12, 18, 8, 12, 8, 12]
    for row in rows:
        assert row["mode"] == "eager"
        assert len(row["bare_ms_all"]) == len(row["full_ms_all"]) == 2
        assert row["full_over_bare"] == pytest.approx(row["bare_ms"] / row["full_ms"])


def test_serving(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = ("--network", "small_cnn", "--image-size", 16, "--images", 6, "--batches", "1,4")
    rows = run(monkeypatch, "serving", tmp_path, *small, "--clients", 2, "--rounds", 1)
    assert [row["images_per_request"] for row in rows] == [1, 4]
    for row in rows:
        ratio = row["served_images_per_second"] / row["plain_images_per_second"]
        assert row["served_over_plain"] == pytest.approx(ratio)


def test_waiting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = ("--images", 40, "--jpeg", "24,16", "--image-size", 8, "--batch", 4, "--steps", 6)
    modes = ["fixed", "memory", "disk", "stream", "disk-host"]
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(importlib.import_module("waiting"), "SETTLE", 0)  # nothing is timed
    rows = run(monkeypatch, "waiting", tmp_path, *small, "--rounds", 1, "--modes", ",".join(modes))
    assert [row["mode"] for row in rows] == modes
    for row in rows:
        assert row["waiting_share"] >= 0
        assert {"first_load_s", "second_load_s", "step_over_fixed", "growth_mib"} <= set(row)
        assert row["budget_mib"] == 4096


def test_frozen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = ("--images", 40, "--width", 8, "--classes", 3, "--views", 1, "--steps", 3)
    rows = run(
        monkeypatch, "frozen", tmp_path, *small, "--probe", 2, "--rounds", 1, "--methods",
        "san,ovanet",
    )  # fmt: skip
    tables = {
        name: [r for r in rows if r["table"] == name] for name in ("runs", "parts", "variants")
    }
    assert [row["method"] for row in tables["runs"]] == ["san", "ovanet"]
    assert {"batch", "forward", "backward", "gradient norm", "optimiser", "rest"} < set(
        tables["parts"][0]
    )
    assert all(row[part] > 0 for row in tables["parts"] for part in ("forward", "optimiser"))
    of = {
        name: {row["variant"] for row in tables["variants"] if row["method"] == name}
        for name in ("san", "ovanet")
    }
    assert {"SGD foreach", "1 thread", "2 threads", "bf16 heads"} < of["ovanet"]
    alone = {"z of 256", "hidden 2", "linear head", "whole", "whole + memory kept"}
    assert of["san"] - of["ovanet"] == alone


def test_cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    images = write_classes(tmp_path / "images", {"ant": 30, "bee": 30})
    small = ("--images", images, "--backbone", "small_cnn", "--image-size", 16, "--count", 40)
    (row,) = run(monkeypatch, "cached", tmp_path, *small)
    assert row["images"] == 40
    assert row["times_as_fast"] == pytest.approx(row["seconds_computed"] / row["seconds_cached"])
    assert row["largest_difference"] < 1e-4


def test_scale(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = ("--smallest", 60, "--largest", 200, "--largest-batch", 32, "--most-classes", 32)
    rows = run(
        monkeypatch, "scale", tmp_path, *small, "--width", 32, "--batch", 8, "--classes", 4,
        "--limit", 999,
    )  # fmt: skip
    assert {row["axis"] for row in rows} == {"images", "classes", "batch"}
    assert {row["task"] for row in rows if row["axis"] == "classes"} == {
        "step of san", "step of ovanet", "step of uniot"
    }  # fmt: skip
    for row in rows:
        assert len(row["sizes"]) == len(row["seconds"]) == len(row["host_mib"]) == 2
        assert isinstance(row["slope"], float)
    assert (tmp_path / "scale.png").stat().st_size > 1000
    assert "<svg" in (tmp_path / "scale.svg").read_text()


def test_scale_stops_where_the_next_size_would_take_too_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small = ("--axes", "batch", "--tasks", "info_nce", "--largest-batch", 64, "--width", 8)
    (row,) = run(monkeypatch, "scale", tmp_path, *small, "--limit", 0)
    assert row["sizes"] == [16]
    assert row["stopped_before"] == 32
    assert row["slope"] is None


def test_against_the_plain_loop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_classes(tmp_path / "source", {"a": 6, "b": 6})
    write_folder(tmp_path / "target", 12)
    options = "source target --backbone small_cnn --batch 8 --image-size 8 --workers 0"
    theirs = f"{sys.executable} {FOLDER / 'plain_loop.py'} {options}"
    data = ("--source", tmp_path / "source", "--target", tmp_path / "target")
    rows = run(
        monkeypatch, "against", tmp_path, *data, "--theirs", theirs, "--theirs-in", tmp_path,
        "--theirs-steps-regex", r"Train (\d+)/", "--theirs-batch", 8, "--backbone", "small_cnn",
        "--batch", 4, "--ours", "--image-size 8", "--steps", 40, "--warm-up", 4, "--rounds", 1,
    )  # fmt: skip
    assert [(row["who"], row["batch"]) for row in rows] == [("theirs", 8), ("ours", 4)]
    assert rows[0]["over_theirs"] == 1
    assert rows[1]["images_per_second"] == pytest.approx(8 * rows[1]["steps_per_second"])


PROGRESS_BAR = """
import sys, time
for step in range(1000):
    sys.stderr.write(f"\\repoch 0 iter {step} of 1000")
    sys.stderr.flush()
    time.sleep(0.002)
"""


def test_against_reads_progress_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    against = importlib.import_module("against")
    given = argparse.Namespace(warm_up=50, steps=300, limit=300)
    command = [sys.executable, "-c", PROGRESS_BAR]
    assert 0 < against.steps_per_second(command, r"iter (\d+)", given) <= 500


def test_against_shows_the_output_where_no_step_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    theirs = f"{sys.executable} -c \"print('no such thing')\""
    data = ("--source", tmp_path, "--target", tmp_path)
    with pytest.raises(SystemExit, match="no such thing"):
        run(monkeypatch, "against", tmp_path, "--theirs", theirs, *data)


def test_against_refuses_steps_that_all_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    against = importlib.import_module("against")
    code = r"import os; os.write(1, b'iter 60\niter 300\n')"
    command = [sys.executable, "-c", code]
    given = argparse.Namespace(warm_up=50, steps=300, limit=300)
    with pytest.raises(SystemExit, match="from 50 to 300 all at once"):
        against.steps_per_second(command, r"iter (\d+)", given)


def test_cpu_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = ("--networks", "small_cnn", "--side", 16, "--batch", 3, "--rounds", 1)
    rows = run(monkeypatch, "cpu_network", tmp_path, *small, "--ways", "unida,PyTorch,PyTorch bf16")
    assert [row["way"] for row in rows] == ["unida", "PyTorch", "PyTorch bf16"]
    assert max(row["over_fastest"] for row in rows[:2]) == 1
    assert max(row["difference"] for row in rows[:2]) < 1e-4 < rows[2]["difference"]


def test_cpu_precision(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for domain in ("source", "target"):
        write_classes(tmp_path / domain, {"a": 6, "b": 6, "c": 6})
    options = ("--backbone", "small_cnn", "--known", 2, "--steps", 3, "--batch", 4)
    places = (tmp_path / "source", tmp_path / "target")
    rows = run(monkeypatch, "cpu_precision", tmp_path, *places, *options, "--image-size", 16)
    assert [row["precision"] for row in rows] == ["fp32", "bf16", "fp32, half-precision file"]
    assert rows[0]["other_labels"] == rows[0]["largest_feature_difference"] == 0
    for row in rows[1:]:
        assert row["images"] == 18
        assert 0 < row["largest_feature_difference"] < 0.1


def test_decoding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = ("--images", 10, "--side", 60, "--size", 36, "--rounds", 1, "--steps", 3)
    rows = run(monkeypatch, "decoding", tmp_path, *small)
    assert len(rows) == 5
    assert rows[0]["over_plain"] == rows[3]["over_cached"] == 1


def test_frozen_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = ("--images", 40, "--width", 8, "--classes", 4, "--steps", 10, "--rounds", 1)
    rows = run(monkeypatch, "frozen_gpu", tmp_path, *small)
    assert {"steps", "batch", "rows", "eager step"} <= {row["table"] for row in rows}
    assert rows[0]["steps_per_second"] == pytest.approx(1000 / rows[0]["ms_per_step"])
