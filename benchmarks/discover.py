"""Novel categories against the truth, way by way; and how their cost grows.

    unida bench benchmarks/discover/novel.toml --data DIGITS --out RESULTS --methods source_only,san
    python benchmarks/discover.py RESULTS --out benchmarks/discover/digits     # .json and .md
    python benchmarks/discover.py --scale                                      # 1,000 … 100,000

Every run of the results is asked for categories in two sets of images: `rejected`, those its reject
rule called unknown, scored on the truly unknown among them; and `unknown`, all truly unknown ones,
which only the truth can tell. Accuracy (Hungarian), NMI and adjusted Rand index are of the found
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


def evaluate(run: Path, result: Result, rule: str, ways: Iterable[str]) -> list[dict[str, Any]]:
    """One row a set and way."""
    arrays = read_arrays(run, result.refine)
    unknown = arrays.labels == len(result.known_classes)
    rejected = ~(arrays.unknown_score < result.rules[rule].threshold)
    sets = {"rejected": (rejected, ~rejected), "unknown": (unknown, ~unknown & ~rejected)}
    rows = []
    for name, (asked, known) in sets.items():
        for way in ways:
            about = {"entry": result.row, "task": result.task, "seed": result.seed}
            about |= {"rule": rule, "set": name, "way": way}
            rows.append(about | postprocess(arrays, result, rule, way, (asked, known, unknown)))
            print(in_words(rows[-1]), flush=True)
    return rows


def postprocess(
    arrays: Arrays, result: Result, rule: str, way: str, masks: tuple[Bools, Bools, Bools]
) -> dict[str, Any]:
    """Scores of one way.

    `masks` are the images to find categories in, those that are taken for known, and those that are
    truly unknown.
    """
    asked, known, unknown = masks
    source = (arrays.source_features, arrays.source_labels)
    anchors = select_known(arrays.features, arrays.best, known, *source)
    found = find_categories(arrays.features[asked], anchors, ALGORITHMS[way])
    novel = unknown[asked]
    classes, groups = arrays.true_class[asked][novel], found.category[novel] - 1
    nmi = float(normalized_mutual_info_score(classes, groups))
    scores = result.rules[rule].scores
    parts = [np.nan if (v := scores[k]) is None else v for k in ("known", "unknown")]
    return {
        "images": int(asked.sum()),
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
    """Expected calibration error of images in categories: right is the commonest class of one."""
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
    names = " ".join(str(row[k]) for k in ("entry", "task", "seed", "set", "way"))
    return f"{names}: {scores}  {row['count']} ({row['low']}–{row['high']}) of {row['true']}"


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: means over tasks and seeds by entry, set and way, then of all entries."""
    titles = [
        "entry",
        "images",
        "way",
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
            for way in dict.fromkeys(row["way"] for row in rows):
                some = [r for r in rows if (r["set"], r["way"]) == (which, way)]
                some = [r for r in some if entry in (r["entry"], "all")]
                lines.append("| " + " | ".join([entry, which, way, *cells(some)]) + " |")
    return "\n".join(lines) + "\n"


def cells(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Means in %; the ratio of found to true categories as a geometric mean."""
    names = (*SCORES, "ece", "none_of_novel", "none_of_known")
    values = [[row[name] for row in rows if row[name] is not None] for name in names]
    ratio = np.exp(np.mean([np.log(max(row["count"], 0.5) / row["true"]) for row in rows]))
    within = sum(row["low"] <= row["true"] <= row["high"] for row in rows)
    means = [f"{100 * statistics.mean(v):.1f}" if v else "–" for v in values]
    return [*means, f"{ratio:.2f}", f"{within} of {len(rows)}", str(len(rows))]


# Scale.


def made_up(
    n: int, categories: int, seed: int = 0
) -> tuple[npt.NDArray[np.float32], KnownFeatures]:
    """Clusters in 64 directions, a tenth of the rows scattered; ten known classes."""
    draws = np.random.default_rng(seed)
    centres = draws.normal(size=(categories + 10, 64))
    labels = draws.integers(0, categories, n)
    x = centres[labels] + draws.normal(size=(n, 64)) * 0.4
    x[: n // 10] = draws.normal(size=(n // 10, 64))
    known = np.repeat(np.arange(10), 60)
    anchors = centres[categories + known] + draws.normal(size=(600, 64)) * 0.4
    return x.astype(np.float32), KnownFeatures(anchors.astype(np.float32), known)


def scale(args: argparse.Namespace) -> None:
    """Seconds at growing numbers of images, and the slope on log–log axes."""
    device = torch.device("cpu")
    rows = []
    for way in args.ways:
        seconds, counts = [], []
        for n in args.sizes:
            x, anchors = made_up(n, args.categories)
            begin = time.perf_counter()
            found = find_categories(x, anchors, ALGORITHMS[way])
            took = time.perf_counter() - begin
            seconds.append(took)
            counts.append([found.low, len(found.centres), found.high])
            print(f"{way} {n}: {took:.1f} s, {counts[-1]} categories", flush=True)
        row = {"way": way, "sizes": args.sizes, "seconds": seconds, "counts": counts}
        rows.append(row | {"slope": slope(args.sizes, seconds), "peak": machine.memory()["peak"]})
    machine.show("slopes, images → seconds", rows, ("way", "slope", "seconds", "counts"))
    machine.write(args, "discover", device, rows)


def slope(sizes: Sequence[int], seconds: Sequence[float]) -> float | None:
    if len(sizes) < 2:
        return None
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def main(argv: list[str] | None = None) -> None:
    parser = machine.parser(__doc__)
    parser.add_argument("results", type=Path, nargs="*", help="folders of unida bench")
    parser.add_argument("--rule", default="mixture", help="reject rule")
    parser.add_argument("--ways", type=machine.some_of(ALGORITHMS), default=list(ALGORITHMS))
    parser.add_argument("--scale", action="store_true", help="measure growth on made-up clusters")
    parser.add_argument("--sizes", type=machine.numbers, default=[1000, 10_000, 100_000])
    parser.add_argument("--categories", type=int, default=50, help="made-up ones")
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
        for row in evaluate(folder, result, args.rule, args.ways)
    ]
    args.out = (args.out or Path("discover")).with_suffix(".json")
    args.results = [str(place) for place in args.results]
    place = machine.write(args, "discover", torch.device("cpu"), rows)
    head = "Novel categories, in %: means over runs. Made by benchmarks/discover.py.\n\n"
    place.with_suffix(".md").write_text(head + table(rows))


if __name__ == "__main__":
    main()
