"""Figures: the rows are what a hand would compute, and the files are what a reader can use."""

import csv
import dataclasses
import itertools
import json
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from unida.bench.arrays import Arrays, read_arrays
from unida.bench.figures import (
    comparison,
    curves,
    embedding,
    histograms,
    pair_losses,
    run_selection,
    signal_to_noise,
    theme,
    tsne,
    view_noise,
)
from unida.bench.figures.run import FIGURES, save, to_csv
from unida.bench.figures.run_selection import Choice
from unida.bench.figures.sheet import FigureData
from unida.bench.results import Result, RuleResult, Run, read_runs, to_json, write_results
from unida.cli.figure import Figure
from unida.errors import UserError
from unida.types import UNKNOWN

CLASSES = ("bike", "mug", "pen", "ruler")
OWN = Choice("own")


def make_result(
    entry: str = "san",
    h: float | None = 0.8,
    *,
    seed: int = 0,
    noise: float = 0.0,
    unknowns: int = 5,
    task: tuple[str, str] = ("amazon", "dslr"),
    classes: tuple[str, ...] = CLASSES,
    data: str = "office",
    refine: str = "none",
    thresholds: tuple[float, float] = (0.0, 1.0),
    **options: Any,
) -> Result:
    """A result whose balanced H is 0.1 below its H."""
    numbers = {"h": h, "balanced_h": None if h is None else h - 0.1}
    rules = {
        name: RuleResult(name, threshold, "found", numbers, [])
        for name, threshold in zip(("own", "mixture"), thresholds, strict=True)
    }
    return Result(
        data=data,
        setting="unda",
        source=task[0],
        target=task[1],
        entry=entry,
        method=re.split("[-:]", entry)[0],
        refine=refine,
        seed=seed,
        label_noise=noise,
        unknown_classes=unknowns,
        known_classes=list(classes),
        shared_classes=list(classes[:-1]),
        images={"source": 40, "target": 40, "unknown": 10},
        options={"steps": 300, "backbone": "resnet50"} | options,
        settings={},
        rules=rules,
        ranking={},
        seconds=1.0,
        parameters=10,
        made_with={},
    )


def make_arrays(n_classes: int, per_class: int, seed: int = 0, gap: float = 4.0) -> dict[str, Any]:
    """Groups of features; unknown classes score around 2, known ones around −2."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, gap, (n_classes + 2, 8))
    source = np.repeat(np.arange(n_classes), per_class)
    # The last known class is not in the target, and two classes there are unknown.
    true = np.repeat([*range(n_classes - 1), n_classes, n_classes + 1], per_class)
    labels = np.minimum(true, n_classes)
    slip = rng.random(len(labels)) < 0.1
    return {
        "labels": labels,
        "true_class": np.array([f"class {k}" for k in true]),
        "best": np.where(slip, 0, np.minimum(labels, n_classes - 1)),
        "confidence": np.full(len(labels), 0.9),
        "unknown_score": rng.normal(np.where(labels == n_classes, 2.0, -2.0), 1.3),
        "features": (centres[true] + 1 + rng.normal(0, 1, (len(true), 8))).astype(np.float32),
        "source_labels": source,
        "source_features": (centres[source] + rng.normal(0, 1, (len(source), 8))).astype("f4"),
    }


def write_run(folder: Path, result: Result, per_class: int = 6, terms: str = "ce open") -> Path:
    run = folder / "runs" / f"{len(list(folder.glob('runs/*'))):03}"
    run.mkdir(parents=True)
    write_results(run / "result.jsonl", [result])
    np.savez(run / "scores.npz", **make_arrays(len(result.known_classes), per_class, result.seed))
    rng = np.random.default_rng(result.seed)
    with (run / "metrics.jsonl").open("w") as file:
        for step in range(50, 301, 50):
            values = {term: float(5 / step**0.4 + 0.1 * rng.random()) for term in terms.split()}
            line = {"step": step, "lr": 0.01, "loss": sum(values.values()), **values}
            file.write(json.dumps(line | {"grad_norm": 2.0, "steps_per_second": 9.0}) + "\n")
    return run


def alone(*results: Result) -> list[Run]:
    return [Run(None, result) for result in results]


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def texts(path: Path) -> str:
    """All texts of an SVG; it must parse."""
    return "\n".join("".join(node.itertext()) for node in ET.parse(path).iter())


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of SAN, a variant and OVANet; of SAN also noise and fewer unknown classes."""
    root = tmp_path_factory.mktemp("bench")
    for seed, (entry, h) in itertools.product(
        (0, 1), (("san", 0.8), ("san-no-scl", 0.7), ("ovanet", 0.6))
    ):
        write_run(root, make_result(entry, h + seed / 10, seed=seed))
    for change in ({"noise": 0.5}, {"unknowns": 2}):
        write_run(root, make_result("san", 0.5, **change))
    Figure(root).execute()
    return root


def test_every_figure_is_a_picture_a_drawing_and_a_table(bench: Path) -> None:
    for kind in sorted(FIGURES.keys() - {"tsne", "views"}):  # of other runs
        stem = bench / "figures" / f"{kind}-office-unda"
        with Image.open(stem.with_suffix(".png")) as image:
            colours = np.asarray(image.convert("RGB"))
        assert colours.shape[0] > 300
        assert colours.std() > 5
        words = texts(stem.with_suffix(".svg"))
        for expected in ("san", "office · unda", "amazon → dslr", "resnet50, 300 steps", " seed"):
            assert expected in words
        assert len(read_csv(stem.with_suffix(".csv"))) > 1


def test_the_same_results_give_the_same_bytes(bench: Path, tmp_path: Path) -> None:
    kinds = ("noise", "tsne-z", "scores")  # lines, a seeded embedding, histograms
    Figure(bench, kinds, tmp_path).execute()
    made = sorted(path.name for path in tmp_path.iterdir())
    assert len(made) == 3 * len(kinds)
    for name in made:
        assert (tmp_path / name).read_bytes() == (bench / "figures" / name).read_bytes(), name


def test_noise_points_are_those_of_a_hand() -> None:
    runs = alone(
        make_result(h=0.8, seed=0), make_result(h=0.9, seed=1), make_result(h=0.5, noise=0.3)
    )
    data = comparison.noise(runs, OWN)
    clean, noisy = [row for row in data.rows if row.score == "H-score"]
    assert (clean.at, clean.mean_percent, clean.seeds) == (0, pytest.approx(85), 2)
    assert clean.std_percent == pytest.approx(50**0.5)  # (5² + 5²) / 1
    assert (noisy.at, noisy.mean_percent, noisy.std_percent) == (30, 50, None)
    balanced = [row.mean_percent for row in data.rows if row.score == "balanced H-score"]
    assert balanced == pytest.approx([75, 40])
    assert "1–2 seeds, mean ± standard deviation" in data.caption


def test_the_csv_of_the_command_holds_the_same_numbers(bench: Path) -> None:
    rows = read_csv(bench / "figures" / "noise-office-unda.csv")
    assert {row["entry"] for row in rows} == {"san"}  # the others were run without noise only
    first = rows[0]
    assert first["source labels made wrong (%)"] == "0.0"
    assert float(first["mean_percent"]) == pytest.approx(85)
    assert (rows[-1]["std_percent"], rows[-1]["seeds"], rows[-1]["tasks"]) == ("", "1", "1")


def test_unknown_classes_are_counted_on_the_axis() -> None:
    runs = alone(make_result(h=0.6, unknowns=2), make_result(h=0.8, unknowns=5))
    runs += alone(make_result(h=0.1, unknowns=5, noise=0.2))  # for the other figure
    rows = [row for row in comparison.unknowns(runs, OWN).rows if row.score == "H-score"]
    assert [(row.at, row.mean_percent) for row in rows] == [(2, 60), (5, 80)]


def test_seeds_are_compared_after_the_mean_over_tasks() -> None:
    there, back = ("amazon", "dslr"), ("dslr", "amazon")
    values = {(0, there): 0.6, (0, back): 0.8, (1, there): 0.8, (1, back): 0.6}
    runs = alone(
        *(
            make_result(entry, h, seed=seed, task=task)
            for (seed, task), h in values.items()
            for entry in ("san", "san-no-scl")
        )
    )
    row = comparison.ablation(runs, OWN).rows[0]
    assert (row.mean_percent, row.std_percent) == (pytest.approx(70), pytest.approx(0, abs=1e-9))
    assert (row.seeds, row.tasks) == (2, 2)


def test_only_tasks_that_every_entry_has_are_averaged() -> None:
    runs = alone(
        make_result("san", 0.8),
        make_result("san", 0.2, task=("dslr", "amazon")),
        make_result("san-no-scl", 0.7),
    )
    data = comparison.ablation(runs, OWN)
    assert [row.mean_percent for row in data.rows if row.score == "H-score"] == [80, 70]
    assert "dslr → amazon" in " ".join(data.notes)
    apart = alone(make_result("san"), make_result("san-no-scl", task=("dslr", "amazon")))
    with pytest.raises(UserError, match="no task in common"):
        comparison.ablation(apart, OWN)


def test_a_seed_counts_only_with_every_task() -> None:
    there, back = ("amazon", "dslr"), ("dslr", "amazon")
    whole = [make_result("san", 0.8, task=task) for task in (there, back)]
    torn = [make_result("san-no-scl", 0.5, seed=i, task=t) for i, t in enumerate((there, back))]
    data = comparison.ablation(alone(*whole, *torn), OWN)
    assert {row.entry for row in data.rows} == {"san"}
    assert data.notes == ("points without a seed that has every task, of san-no-scl",)
    other = [dataclasses.replace(result, entry="san-no-aio") for result in torn]
    with pytest.raises(UserError, match="No seed has every task"):
        comparison.ablation(alone(*torn, *other), OWN)


def test_a_rule_that_was_not_scored_is_refused() -> None:
    runs = alone(make_result("san"), make_result("san-no-scl"))
    with pytest.raises(UserError, match="rule is 'best'; allowed: own, mixture"):
        comparison.ablation(runs, Choice("best"))


def test_the_ablation_is_in_the_papers_order_and_ends_with_ovanet() -> None:
    entries = ("ovanet", "uan", "san-info-nce", "san-no-scl", "san", "san-no-aio")
    rows = comparison.ablation(alone(*map(make_result, entries)), OWN).rows
    shown = list(dict.fromkeys(row.entry for row in rows))
    assert shown == ["san", "san-no-aio", "san-no-scl", "san-info-nce", "ovanet"]
    picked = [run for run in alone(*map(make_result, entries)) if len(run.result.entry) < 7]
    rows = comparison.ablation(picked, Choice("own", picked=True)).rows
    assert {row.entry for row in rows} == {"san", "ovanet", "uan"}


def test_a_refinement_is_a_row_of_its_own_and_its_training_is_shown_once(tmp_path: Path) -> None:
    for entry in ("san", "san-no-scl"):
        plain, refined = make_result(entry), make_result(entry, refine="prototypes,knn")
        run = write_run(tmp_path, plain)
        write_results(run / "result.jsonl", [plain, refined])
    runs = read_runs(tmp_path)
    shown = dict.fromkeys(row.entry for row in comparison.ablation(runs, OWN).rows)
    assert list(shown) == ["san", "san + refinement", "san-no-scl", "san-no-scl + refinement"]
    assert {row.entry for row in curves.curves(runs, OWN).rows} == {"san", "san-no-scl"}


def test_undefined_scores_are_left_out_and_noted() -> None:
    runs = alone(make_result("san"), make_result("san-no-scl"), make_result("san-no-aio", None))
    data = comparison.ablation(runs, OWN)
    assert {row.entry for row in data.rows} == {"san", "san-no-scl"}
    assert data.notes == ("1 results whose H-score is undefined",)


def test_a_rule_that_fell_back_is_noted() -> None:
    runs = alone(make_result("san"), make_result("san-no-scl"))
    fallen = dataclasses.replace(runs[0].result.rules["mixture"], in_force="own")
    runs[0].result.rules["mixture"] = fallen
    caption = comparison.ablation(runs, Choice("mixture")).caption
    assert "reject rule mixture, which fell back to own in 1 of 2 runs" in caption


def test_runs_that_differ_in_options_only_are_refused() -> None:
    runs = alone(make_result(lr=0.1), make_result(lr=0.2), make_result(noise=0.5))
    with pytest.raises(UserError, match="differ in their options"):
        comparison.noise(runs, OWN)


def test_other_steps_are_another_figure(tmp_path: Path) -> None:
    results = [
        make_result(noise=noise, steps=steps) for noise in (0.0, 0.5) for steps in (100, 200)
    ]
    file = tmp_path / "results.jsonl"
    file.write_text("".join(to_json(result) + "\n" for result in results))
    Figure(file, kinds=("noise",)).execute()
    names = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert names == {"noise-office-unda-steps_100", "noise-office-unda-steps_200"}


def test_curves_are_means_over_seeds_of_every_loss(bench: Path) -> None:
    rows = read_csv(bench / "figures" / "curves-office-unda.csv")
    assert {row["term"] for row in rows} == {"loss", "ce", "open"}
    logs = [run.folder for run in read_runs(bench) if run.result.entry == "ovanet"]
    lines = [json.loads((log / "metrics.jsonl").read_text().splitlines()[2]) for log in logs if log]
    (row,) = [r for r in rows if (r["entry"], r["term"], r["step"]) == ("ovanet", "ce", "150")]
    assert float(row["mean"]) == pytest.approx(np.mean([line["ce"] for line in lines]))
    assert float(row["std"]) == pytest.approx(np.std([line["ce"] for line in lines], ddof=1))


def test_bins_hold_every_image_and_the_thresholds_are_there(bench: Path) -> None:
    rows = read_csv(bench / "figures" / "scores-office-unda.csv")
    for group in ("known", UNKNOWN):
        part = [r for r in rows if (r["entry"], r["group"]) == ("san", group)]
        assert sum(float(row["percent"]) for row in part) == pytest.approx(100)
    lines = {r["group"]: float(r["left"]) for r in rows if r["percent"] == ""}
    assert lines == {"threshold: own": 0.0, "threshold: mixture": 1.0}
    words = texts(bench / "figures" / "scores-office-unda.svg")
    assert "mixture" in words
    assert "own" in words


def test_a_far_score_does_not_squeeze_the_rest() -> None:
    arrays = Arrays(**make_arrays(4, 500))
    arrays.unknown_score[0], arrays.unknown_score[1] = 1e9, np.nan
    rows = list(histograms._histogram(make_result(), arrays))
    assert max(row.right for row in rows) < 10


def test_dots_show_the_true_class_and_cross_the_mistakes(bench: Path) -> None:
    rows = read_csv(bench / "figures" / "tsne-z-office-unda.csv")
    runs = {run.result.entry: run for run in read_runs(bench) if not run.result.seed}
    folder = runs["ovanet"].folder
    assert folder is not None
    arrays = read_arrays(folder)
    predictions = np.where(arrays.unknown_score >= 0, len(CLASSES), arrays.best)
    part = [row for row in rows if row["entry"] == "ovanet"]
    target = [row for row in part if row["domain"] == "target"]
    assert len(part) == len(arrays.labels) + len(arrays.source_labels)
    wrong = [row["mistake"] == "True" for row in target]
    assert wrong == (predictions != arrays.labels).tolist()
    assert {row["class_name"] for row in target} == {*CLASSES[:-1], "class 4", "class 5"}
    numbers = {row["class_name"]: int(row["number"]) for row in part}
    assert numbers == {"bike": 1, "mug": 2, "pen": 3, "ruler": 4, "class 4": -1, "class 5": -2}
    is_unknown = [int(row["number"]) < 0 for row in target]
    assert is_unknown == (arrays.labels == len(CLASSES)).tolist()
    assert not [r for r in part if r["domain"] == "source" and r["mistake"] == "True"]


def test_a_sample_is_even_in_domains_and_classes() -> None:
    part = np.repeat([0, 1, 2], [100, 900, 3000])
    classes = np.array([f"{p} {i % (2 if p == 1 else 5)}" for i, p in enumerate(part)])
    keep = embedding._even_sample(part, classes, 1000, np.random.default_rng(0))
    assert len(keep) == len(set(keep.tolist())) == 1000
    assert np.bincount(part[keep]).tolist() == [100, 450, 450]
    _, counts = np.unique(classes[keep[part[keep] == 2]], return_counts=True)
    assert counts.tolist() == [90] * 5


HOSTILE = ("$x_1^", "a_b<c>&\"'", "\\frac{", "猫 🐈 кот", "n" * 300, "line\nbreak\x01\udc80", "")


def test_names_of_any_kind_neither_break_the_text_nor_the_layout(tmp_path: Path) -> None:
    for entry in ("san", "san:contrast=none", "ovanet-$\\alpha_"):
        for noise in (0.0, 0.1):
            task = ("$source$_" + "s" * 80, "<target>")
            result = make_result(
                entry, noise=noise, task=task, classes=HOSTILE, data="../$d_<&>\n" + "d" * 200
            )
            write_run(tmp_path, result, per_class=2, terms="ce $loss_1$")
    Figure(tmp_path).execute()
    made = sorted((tmp_path / "figures").glob("*"))
    assert {path.suffix for path in made} == {".png", ".svg", ".csv"}
    # There is one number of unknown classes and one strength of views, and of no run the features
    # of the backbone.
    assert len(made) == 3 * (len(FIGURES) - 3)
    for path in made:
        if path.suffix == ".svg":
            assert "../$d_<&>" in texts(path)
        if path.suffix == ".png":
            with Image.open(path) as image:
                assert max(image.size) < 4000
    (table,) = [path for path in made if path.name.startswith("tsne") and path.suffix == ".csv"]
    with table.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        names = {row["class_name"] for row in csv.DictReader(file)}
    assert names >= {*HOSTILE}
    assert "$x_1^" in texts(table.with_suffix(".svg"))


def test_entries_whose_names_are_long_and_alike_keep_a_line_each() -> None:
    names = [f"san:{'x' * 40}{k}{'y' * 40}" for k in range(3)]
    runs = alone(*(make_result(name, noise=noise) for name in names for noise in (0.0, 0.5)))
    picture = comparison.draw_lines(comparison.noise(runs, OWN))
    shown = [text.get_text() for text in picture.legends[0].get_texts()]
    assert len(set(shown)) == 3
    assert max(map(len, shown)) < 30


def test_many_classes_have_numbers_for_names() -> None:
    names = tuple(f"class {k}" for k in range(20))
    dots = [
        tsne.Dot("san", domain, name, number, float(number), float(place), False)
        for place, domain in enumerate(("source", "target"))
        for number, name in enumerate(names, 1)
    ]
    picture = tsne.draw_tsne(FigureData("title", "caption", dots))
    shown = [text.get_text() for text in picture.legends[0].get_texts()]
    assert "1–20: known classes" in shown
    assert not [text for text in shown if "class 3" in text]
    assert {str(number) for number in range(1, 21)} <= {t.get_text() for t in picture.axes[0].texts}


def test_a_single_seed_has_no_spread(tmp_path: Path) -> None:
    for noise in (0.0, 0.2):
        write_run(tmp_path, make_result(noise=noise))
    Figure(tmp_path, kinds=("noise,curves",)).execute()
    for kind, column in (("noise", "std_percent"), ("curves", "std")):
        rows = read_csv(tmp_path / "figures" / f"{kind}-office-unda.csv")
        assert {row[column] for row in rows} == {""}
    assert "1 seed, so no spread" in texts(tmp_path / "figures" / "noise-office-unda.svg")


def test_a_list_of_results_gives_what_needs_no_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "unida")
    file = tmp_path / "results.jsonl"
    lines = [to_json(make_result(entry)) + "\n" for entry in ("san", "san-no-scl")]
    file.write_text("".join(lines))
    Figure(file).execute()
    logged = caplog.messages
    assert next(line for line in logged if line.startswith("wrote")).endswith(".svg and .csv")
    for kind, reason in (
        ("tsne", "No run has scores.npz"),
        ("views", "No loss was run at two strengths"),
        ("scores", "No run has scores.npz"),
        ("curves", "No run has metrics.jsonl"),
        ("noise", "No entry was run at two or more levels of label noise."),
    ):
        assert [line for line in logged if line.startswith(f"left out: {kind}-") and reason in line]
    assert {path.suffix for path in (tmp_path / "figures").iterdir()} == {".png", ".svg", ".csv"}
    with pytest.raises(UserError, match=r"nothing to draw tsne from\."):
        Figure(file, kinds=("tsne",)).execute()


def test_damaged_files_are_answered_in_a_sentence(tmp_path: Path) -> None:
    run = write_run(tmp_path, make_result())
    runs = read_runs(tmp_path)
    arrays = make_arrays(4, 3)
    np.savez(run / "scores.npz", **arrays | {"best": arrays["best"][1:]})
    with pytest.raises(UserError, match="different lengths"):
        histograms.scores(runs, OWN)
    np.savez(run / "scores.npz", labels=[1])
    with pytest.raises(UserError, match="does not hold the scores"):
        histograms.scores(runs, OWN)
    (run / "scores.npz").write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(UserError, match="does not hold the scores"):
        tsne.of_classifier(runs, OWN)
    np.savez(run / "scores.npz", **arrays | {"features": np.full_like(arrays["features"], np.nan)})
    with pytest.raises(UserError, match="not finite"):
        tsne.of_classifier(runs, OWN)
    (run / "metrics.jsonl").write_text('{"step": 1')
    with pytest.raises(UserError, match="not the log of a run"):
        curves.curves(runs, OWN)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"kinds": ("pie",)}, "kinds is 'pie'; allowed: noise, unknowns"),
        ({"task": "moon -> mars"}, "task is 'moon -> mars'; allowed: amazon → dslr"),
        ({"entries": ("sun",)}, "entries is 'sun'; allowed: ovanet, san, san-no-scl"),
    ],
)
def test_a_wrong_choice_is_answered_with_what_there_is(
    bench: Path, change: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        Figure(bench, **change).execute()


def test_task_entries_and_seed_choose(bench: Path, tmp_path: Path) -> None:
    given = Figure(
        bench, ("scores",), tmp_path, task="amazon->dslr", entries=("ovanet,san",), seed=1
    )
    given.execute()
    rows = read_csv(tmp_path / "scores-office-unda.csv")
    assert list(dict.fromkeys(row["entry"] for row in rows)) == ["san", "ovanet"]
    assert "seed 1" in texts(tmp_path / "scores-office-unda.svg")


def test_more_entries_than_a_page_holds_are_noted() -> None:
    methods = ("cmu", "dance", "dcc", "gate", "glc", "san-no-scl", "san", "ovanet")
    runs, notes = run_selection.few_rows(alone(*map(make_result, methods)), OWN)
    shown = [run.result.entry for run in runs]
    assert shown == ["san", "ovanet", "cmu", "dance", "dcc", "gate"]
    assert notes == ("entries beyond 6 (name others by --entries): glc, san-no-scl",)
    assert len(run_selection.few_rows(runs, Choice("own", picked=True))[0]) == 6


def test_without_matplotlib_there_is_a_sentence(
    bench: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"extra 'plots'.: pip install matplotlib"):
        Figure(bench).execute()


def test_drawing_leaves_the_users_style_alone(tmp_path: Path) -> None:
    import matplotlib

    with matplotlib.rc_context({"font.size": 31}):
        data = comparison.ablation(alone(make_result("san"), make_result("san-no-scl")), OWN)
        with (tmp_path / "x.png").open("wb") as file:
            save(data, comparison.draw_bars, {"png": file})
        assert matplotlib.rcParams["font.size"] == 31
    assert "std_percent" in to_csv(data)


def linear(colour: str) -> np.ndarray:
    """Linear RGB of #RRGGBB."""
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIELAB of linear RGB under D65."""
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    f = np.cbrt(np.clip(xyz @ rgb, 1e-6, None) / [0.9505, 1, 1.089])
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


VISION = {
    "all cones": np.eye(3),
    # Machado, Oliveira & Fernandes (2009), severity 1.
    "no green cones": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
         [-0.011820, 0.042940, 0.968881]]
    ),
    "no red cones": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
         [-0.003882, -0.048116, 1.051998]]
    ),
}  # fmt: skip


@pytest.mark.parametrize("vision", VISION)
def test_colours_differ_under_every_vision(vision: str) -> None:
    colours = [lab(np.clip(VISION[vision] @ linear(c), 0, 1)) for c in (*theme.COLOURS, theme.GREY)]
    distances = [float(np.linalg.norm(a - b)) for a, b in itertools.combinations(colours, 2)]
    assert min(distances) > 15


def test_colours_stand_out_from_white() -> None:
    def contrast(colour: str) -> float:
        return float(1.05 / (linear(colour) @ [0.2126, 0.7152, 0.0722] + 0.05))

    assert min(map(contrast, theme.COLOURS)) > 2  # markers and bars have dark edges besides
    assert min(map(contrast, theme.COLOURS[:4])) > 3
    assert contrast(theme.INK) > 7
    assert contrast(theme.GREY) > 4.5


def test_lines_and_classes_have_distinct_styles() -> None:
    lines = {
        (i % len(theme.COLOURS), i % len(theme.LINES), i % len(theme.MARKERS)) for i in range(24)
    }
    assert len(lines) == 24
    classes = [*range(-50, 0), *range(1, 43)]
    styles = {tuple(sorted(tsne._style(k, "target").items())) for k in classes}
    assert len(styles) == len(classes)
    for k in range(1, 43):
        assert tsne._style(k, "target")["marker"] != tsne._style(k, "source")["marker"]


def test_the_backbones_features_are_shown_where_a_run_has_them(tmp_path: Path) -> None:
    run = write_run(tmp_path, make_result())
    with pytest.raises(UserError, match="trained backbone"):
        tsne.of_backbone(read_runs(tmp_path), OWN)
    arrays = make_arrays(4, 6)
    names = {"backbone": "features", "source_backbone": "source_features"}
    turned = {new: -arrays[old] for new, old in names.items()}
    np.savez(run / "scores.npz", **arrays | turned)
    data = tsne.of_backbone(read_runs(tmp_path), OWN)
    assert "backbone" in data.title
    assert len(data.rows) == len(arrays["labels"]) + len(arrays["source_labels"])
    np.savez(run / "scores.npz", **arrays | turned | {"backbone": turned["backbone"][1:]})
    with pytest.raises(UserError, match="different lengths"):
        tsne.of_backbone(read_runs(tmp_path), OWN)


# --- view noise


def of_views(contrast: str, crop: float, h: float, **changes: Any) -> Result:
    result = make_result(f"san:contrast={contrast}:crop={crop}", h, **changes)
    settings = {"contrast": contrast, "crop": crop}
    return dataclasses.replace(result, settings=settings, ranking={"auroc": h + 0.05})


def test_view_noise_is_h_and_auroc_against_both_strengths() -> None:
    runs = alone(
        *(of_views("scaled", crop, crop) for crop in (0.9, 0.5, 0.1)),
        *(of_views("info_nce", crop, crop / 2) for crop in (0.9, 0.5, 0.1)),
        *(of_views("scaled", 0.5, 0.7, jitter=jitter) for jitter in (0.0, 2.0)),
        of_views("scaled", 0.5, 0.9, seed=1),
        of_views("scaled", 0.3, 0.9, jitter=2.0),  # both strengths changed: in no line
    )
    rows = view_noise.view_noise(runs, OWN).rows
    found = {(r.axis, r.contrast, r.strength, r.score): r.mean_percent for r in rows}
    assert found["crop", "SCL", 0.1, "H"] == pytest.approx(90)
    assert found["crop", "SCL", 0.5, "H"] == pytest.approx(70)  # of 50 and 90
    assert found["crop", "InfoNCE", 0.9, "AUROC"] == pytest.approx(10)
    assert found["jitter", "SCL", 2.0, "AUROC"] == pytest.approx(75)
    assert ("crop", "SCL", 0.7, "H") not in found
    assert {r.seeds for r in rows} == {1, 2}


def test_views_of_a_frozen_backbone_are_no_view_noise() -> None:
    runs = alone(*(of_views("scaled", crop, crop, frozen=True) for crop in (0.9, 0.1)))
    with pytest.raises(UserError, match="two strengths"):
        view_noise.view_noise(runs, OWN)


# --- the losses themselves


def test_cl_does_not_know_a_noisy_pair_and_scl_does() -> None:
    losses = dict(pair_losses.LOSSES)
    pulls = {
        (name, noisy): pair_losses._pull(loss, distance, noisy, 60)
        for name, (loss, distance) in losses.items()
        for noisy in (False, True)
    }
    for name in losses:
        clean, noisy = pulls[name, False], pulls[name, True]
        if name.startswith("CL") or "real" in name:  # P is hard, or flat
            assert noisy == pytest.approx(clean, rel=0.02), name
        else:
            assert abs(noisy) < 0.2 * clean, name
    assert pulls["CL, InfoNCE (Eq. 1)", True] > 0


def test_the_difference_of_the_losses_does_not_vanish_where_the_appendix_says() -> None:
    found = pair_losses.difference().rows
    rows = {(r.pair, r.alpha, round(r.distance, 3)): r.difference for r in found}
    assert rows["positive, as printed", 0.0, 1.0] == 0
    # κ^100(1) = .2407658969 and κ^10(1) = .2303619892: (1 − .2408) ln(1/.2304 − 1)
    assert rows["positive", 0.0, 1.0] == pytest.approx(0.7592341031 * np.log(1 / 0.2303619892 - 1))
    assert rows["negative", 0.5, 1.0] == pytest.approx(-0.2407658969 * np.log(1 / 0.2303619892 - 1))


def test_the_proof_s_ratio_is_that_of_a_hand_and_fails_where_p_exceeds_one() -> None:
    rows = [*signal_to_noise._of_proof()]
    at = {(row.alpha, round(row.similarity, 2)): row for row in rows}
    s, t = 0.5, signal_to_noise.UNLIKE
    cl = (-np.log(s) - np.log(1 - t)) / (-np.log(t) - np.log(1 - s))
    assert at[0.0, 0.5].ratio_cl == pytest.approx(cl)
    assert at[0.0, 0.5].ratio_scl == pytest.approx(1)  # P is Q: no loss tells them apart
    assert all(row.holds for row in rows if not row.alpha)
    failed = [row for row in rows if not row.holds]
    assert failed
    assert all(np.exp(row.alpha) * row.similarity > 1 for row in failed)


def test_the_ratio_of_a_batch_counts_clean_and_noisy_images() -> None:
    y, z = signal_to_noise._made_up()
    row = signal_to_noise._of_batch("made up", "scaled", 0.5, y, z)
    assert row.ratio_cl < 1 < row.ratio_scl  # CL is large on noisy pairs, SCL is not
    assert row.gradient_scl > row.gradient_cl
    assert row.holds


def test_analyses_need_no_results_and_other_figures_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_losses, "DRAWS", 1)
    monkeypatch.setattr(signal_to_noise, "_of_digits", lambda: iter(()))
    kinds = ("gradients", "difference", "snr")
    Figure(kinds=kinds, out=tmp_path).execute()
    assert {p.name for p in tmp_path.iterdir()} == {
        f"{kind}.{ending}" for kind in kinds for ending in ("png", "svg", "csv")
    }
    for kind in kinds:
        assert len(read_csv(tmp_path / f"{kind}.csv")) > 10
    with pytest.raises(UserError, match="results"):
        Figure(kinds=("noise",)).execute()
