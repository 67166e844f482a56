"""Novel categories scored with true labels, by algorithm; and how their cost grows.

    cd benchmarks/results/digits/scratch/discover
    unida bench novel.toml --data DIGITS --out RESULTS --methods source_only,san
    python benchmarks/scripts/discover.py RESULTS --out discover  # .json, .md
    python benchmarks/scripts/discover.py --scale  # 1,000 … 100,000 images

Categories are found in two sets of images of every run: `rejected`, those its reject rule calls
unknown, scored on the truly unknown among them; and `unknown`, all truly unknown ones, which needs
true labels. Accuracy (Hungarian), NMI and adjusted Rand index are of the found
categories; 'none of these' is always wrong for the accuracy and one more group for the others. H3
takes the NMI. ECE is of the confidences: an image is right if its class is the commonest of its
category. Labels are used for scoring only.
"""

import argparse
import math
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import machine
import numpy as np
import numpy.typing as npt
import torch
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from unida.bench.arrays import Arrays, read_arrays
from unida.bench.results import Result, read_runs
from unida.decision.calibration import expected_error, reliability
from unida.discovery.algorithms import ALGORITHMS
from unida.discovery.clustering import find_categories, select_known
from unida.discovery.clusters import KnownFeatures
from unida.evaluation.metrics import cluster_accuracy, h3
from unida.types import FloatArray, IntArray

Bools = npt.NDArray[np.bool_]
SCORES = ("acc", "nmi", "ari", "h3")


def evaluate(
    run: Path, result: Result, rule: str, algorithms: Iterable[str]
) -> list[dict[str, Any]]:
    """Return a row per set and algorithm."""
    arrays = read_arrays(run, result.refine)
    unknown = arrays.labels == len(result.known_classes)
    rejected = ~(arrays.unknown_score < result.rules[rule].threshold)
    sets = {"rejected": (rejected, ~rejected), "unknown": (unknown, ~unknown & ~rejected)}
    rows = []
    for name, (selected, known) in sets.items():
        for algorithm in algorithms:
            about = {"entry": result.row, "task": result.task, "seed": result.seed}
            about |= {"rule": rule, "set": name, "algorithm": algorithm}
            rows.append(
                about | scores_of(arrays, result, rule, algorithm, (selected, known, unknown))
            )
            print(in_words(rows[-1]), flush=True)
    return rows


def scores_of(
    arrays: Arrays, result: Result, rule: str, algorithm: str, masks: tuple[Bools, Bools, Bools]
) -> dict[str, Any]:
    """Return the scores of one algorithm.

    `masks` are the images to find categories in, those predicted as known, and those that are
    truly unknown.
    """
    selected, known, unknown = masks
    source = (arrays.source_features, arrays.source_labels)
    known_features = select_known(arrays.features, arrays.best, known, *source)
    found = find_categories(arrays.features[selected], known_features, ALGORITHMS[algorithm])
    novel = unknown[selected]
    classes, groups = arrays.true_class[selected][novel], found.category[novel] - 1
    nmi = float(normalized_mutual_info_score(classes, groups))
    scores = result.rules[rule].scores
    parts = [np.nan if (v := scores[k]) is None else v for k in ("known", "unknown")]
    return {
        "images": int(selected.sum()),
        "novel": int(novel.sum()),
        "acc": cluster_accuracy(classes, groups),
        "nmi": nmi,
        "ari": float(adjusted_rand_score(classes, groups)),
        "h3": h3(*parts, nmi),
        "ece": calibration(classes, groups, found.confidence[novel]),
        "none_of_novel": float((groups < 0).mean()),
        "none_of_known": float((found.category[~novel] == 0).mean()) if (~novel).any() else None,
        "count": len(found.centres),
        "low": found.low,
        "high": found.high,
        "true": len(np.unique(classes)),
    }


def calibration(classes: npt.NDArray[Any], groups: IntArray, confidence: FloatArray) -> float:
    """Return the calibration error of images in categories; the commonest class is correct."""
    _, number = np.unique(classes, return_inverse=True)
    inside = groups >= 0
    if not inside.any():
        return math.nan
    counts = np.zeros((groups.max() + 1, number.max() + 1))
    np.add.at(counts, (groups[inside], number[inside]), 1)
    right = counts.argmax(1)[groups[inside]] == number[inside]
    return expected_error(reliability(confidence[inside], right))


def in_words(row: dict[str, Any]) -> str:
    scores = "  ".join(f"{name} {100 * row[name]:.1f}" for name in SCORES)
    names = " ".join(str(row[k]) for k in ("entry", "task", "seed", "set", "algorithm"))
    return f"{names}: {scores}  {row['count']} ({row['low']}–{row['high']}) of {row['true']}"


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return Markdown: means over tasks and seeds by entry, set and algorithm, then of all."""
    titles = [
        "entry",
        "images",
        "algorithm",
        "accuracy",
        "NMI",
        "ARI",
        "H3",
        "ECE",
        "none: novel",
        "none: known",
    ]
    titles += ["found / true", "true within", "runs"]
    lines = ["| " + " | ".join(titles) + " |", "|---|---|---|" + "---:|" * (len(titles) - 3)]
    entries = [*dict.fromkeys(row["entry"] for row in rows), "all"]
    for entry in entries:
        for which in dict.fromkeys(row["set"] for row in rows):
            for algorithm in dict.fromkeys(row["algorithm"] for row in rows):
                some = [r for r in rows if (r["set"], r["algorithm"]) == (which, algorithm)]
                some = [r for r in some if entry in (r["entry"], "all")]
                lines.append("| " + " | ".join([entry, which, algorithm, *cells(some)]) + " |")
    return "\n".join(lines) + "\n"


def cells(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return means in %; the ratio of found to true categories as a geometric mean."""
    names = (*SCORES, "ece", "none_of_novel", "none_of_known")
    values = [[row[name] for row in rows if row[name] is not None] for name in names]
    ratio = np.exp(np.mean([np.log(max(row["count"], 0.5) / row["true"]) for row in rows]))
    within = sum(row["low"] <= row["true"] <= row["high"] for row in rows)
    means = [f"{100 * statistics.mean(v):.1f}" if v else "–" for v in values]
    return [*means, f"{ratio:.2f}", f"{within} of {len(rows)}", str(len(rows))]


# Scale.


def random_clusters(
    n: int, categories: int, seed: int = 0
) -> tuple[npt.NDArray[np.float32], KnownFeatures]:
    """Return clusters in 64 dimensions, a tenth of the rows scattered, and ten known classes."""
    draws = np.random.default_rng(seed)
    centres = draws.normal(size=(categories + 10, 64))
    labels = draws.integers(0, categories, n)
    x = centres[labels] + draws.normal(size=(n, 64)) * 0.4
    x[: n // 10] = draws.normal(size=(n // 10, 64))
    known = np.repeat(np.arange(10), 60)
    known_features = centres[categories + known] + draws.normal(size=(600, 64)) * 0.4
    return x.astype(np.float32), KnownFeatures(known_features.astype(np.float32), known)


def scale(args: argparse.Namespace) -> None:
    """Measure seconds at growing numbers of images, and the slope on log–log axes."""
    device = torch.device("cpu")
    rows = []
    for algorithm in args.algorithms:
        seconds, counts = [], []
        for n in args.sizes:
            x, known_features = random_clusters(n, args.categories)
            begin = time.perf_counter()
            found = find_categories(x, known_features, ALGORITHMS[algorithm])
            took = time.perf_counter() - begin
            seconds.append(took)
            counts.append([found.low, len(found.centres), found.high])
            print(f"{algorithm} {n}: {took:.1f} s, {counts[-1]} categories", flush=True)
        row = {"algorithm": algorithm, "sizes": args.sizes, "seconds": seconds, "counts": counts}
        rows.append(row | {"slope": slope(args.sizes, seconds), "peak": machine.memory()["peak"]})
    machine.show("slopes, images → seconds", rows, ("algorithm", "slope", "seconds", "counts"))
    machine.write(args, "discover", device, rows)


def slope(sizes: Sequence[int], seconds: Sequence[float]) -> float | None:
    if len(sizes) < 2:
        return None
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def main(argv: list[str] | None = None) -> None:
    parser = machine.parser(__doc__)
    parser.add_argument("results", type=Path, nargs="*", help="folders of unida bench")
    parser.add_argument("--rule", default="mixture", help="reject rule")
    parser.add_argument(
        "--algorithms", type=machine.subset_of(ALGORITHMS), default=list(ALGORITHMS)
    )
    parser.add_argument("--scale", action="store_true", help="measure growth on random clusters")
    parser.add_argument("--sizes", type=machine.numbers, default=[1000, 10_000, 100_000])
    parser.add_argument("--categories", type=int, default=50, help="random ones")
    args = parser.parse_args(argv)
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.scale:
        scale(args)
        return
    if not args.results:
        parser.error("name folders of results, or --scale")
    rows = [
        row
        for place in args.results
        for folder, result in read_runs(place)
        if folder
        for row in evaluate(folder, result, args.rule, args.algorithms)
    ]
    args.out = (args.out or Path("discover")).with_suffix(".json")
    args.results = [str(place) for place in args.results]
    place = machine.write(args, "discover", torch.device("cpu"), rows)
    head = "Novel categories, in %: means over runs. Made by benchmarks/scripts/discover.py.\n\n"
    place.with_suffix(".md").write_text(head + table(rows))


if __name__ == "__main__":
    main()
