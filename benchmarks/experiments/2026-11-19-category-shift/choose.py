"""Compare gates of the rule `share` on the exploration tasks.

    PYTHONPATH=benchmarks/scripts python choose.py PLAN.json DUMPS OUT

PLAN and DUMPS are those of `benchmarks/scripts/frozen_bench.py --dump`. Of every refined run on an
exploration task the value at each rejected share is computed once; then gates are compared. The
true labels of these tasks choose: they are marked in every table. OUT/gates.md has the best gates.
"""

import argparse
import itertools
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from frozen_bench import Worker, embed_all, read_plan
from refit_rules import Signs, read_dump, signs_of, stored_outputs

from unida.decision import mixture_model
from unida.decision.inference import target_outputs
from unida.decision.rejection import MAX_GAIN, SQUASH, _share_of_confidence
from unida.evaluation.metrics import score, universal_value

TASKS = {
    "office-home": {("Art", "Clipart"), ("Real World", "Art"), ("Clipart", "Real World")},
    "office-caltech10": {("amazon", "webcam"), ("webcam", "caltech10"), ("caltech10", "amazon")},
}
SHARES = np.linspace(0, 1, 101)
BUDGETS = (0.01, 0.02, 0.03)
MARGIN_WEIGHTS, GAIN_WEIGHTS = (2.0, 4.0), (0.0, 5.0, 10.0)
KEPT = 0.95
"""Least part of the accuracy with nothing rejected that closed and partial sets keep."""


def curve(labels: Any, best: Any, scores: Any, unknown: int) -> list[float]:
    """Compute the value in % at each rejected share."""
    falling, values = -np.sort(-scores), []
    for share in SHARES:
        n = round(share * len(scores))
        edges = (np.inf, *((falling[:-1] + falling[1:]) / 2), -np.inf)
        found = score(labels, np.where(scores < edges[n], best, unknown), unknown=unknown)
        values.append(100 * universal_value(found.h, found.known_instance, found.unknown))
    return values


def describe(one: Any, content: bytes, kept: Signs, shift: str) -> dict[str, Any]:
    """Return what a gate needs of a run."""
    scored, names = stored_outputs(content, True, len(one.known_classes))
    scores, unknown = scored.unknown_score, len(one.known_classes)
    number = {name: k for k, name in enumerate(one.known_classes)}
    labels = np.array([number.get(name, unknown) for name in names])
    found, plain = mixture_model.fit(scores, SQUASH), mixture_model.fit(scores)
    has = found is not None and found.crossing is not None
    is_upper = scores >= (found.crossing if has and found else np.quantile(scores, 0.7))
    compare = target_outputs(scored, *kept).compare
    signs = compare(is_upper) if compare else None
    assert signs is not None
    return {
        "row": (one.entry, one.data),
        "shift": shift,
        "true": float((labels == unknown).mean()),
        "values": curve(labels, scored.probs.argmax(1), scores, unknown),
        "upper": float(is_upper.mean()),
        "features": signs.reach - signs.density,
        "margin": signs.margin,
        "gain": min(max(plain.gain, 0.0), MAX_GAIN) if plain else 0.0,
        "budget": {b: _share_of_confidence(scores, scored.probs.max(1), b) for b in BUDGETS},
    }


def rejected(run: dict[str, Any], gate: tuple[float, ...]) -> float:
    """Return the share that the rule rejects, as `rejection.share` does."""
    opened, closed, of_margin, of_gain, budget = gate
    evidence = run["features"] + of_margin * run["margin"] - of_gain * run["gain"]
    w = float(np.clip((closed - evidence) / (closed - opened), 0, 1))
    return max(w * run["upper"] + (1 - w) * run["budget"][budget], run["budget"][budget])


def measure(runs: list[dict[str, Any]], gate: tuple[float, ...]) -> tuple[float, float, float]:
    """Return means over methods and data sets: four settings, few unknown classes, accuracy kept.

    SAN counts twice.
    """
    main, few, kept = [], [], []
    for row in dict.fromkeys(run["row"] for run in runs):
        values: dict[str, list[float]] = {}
        of_none: dict[str, list[float]] = {}
        for run in (run for run in runs if run["row"] == row):
            value = float(np.interp(rejected(run, gate), SHARES, run["values"]))
            values.setdefault(run["shift"], []).append(value)
            of_none.setdefault(run["shift"], []).append(run["values"][0])
        means = {shift: mean(found) for shift, found in values.items()}
        times = 2 if row[0] == "san" else 1
        main += times * [mean(m for shift, m in means.items() if "-" not in shift)]
        few += times * [m for shift, m in means.items() if "-" in shift]
        kept += times * [means[s] / mean(of_none[s]) for s in ("closed", "pda") if s in means]
    return mean(main), mean(few) if few else float("nan"), mean(kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("plan", type=Path)
    parser.add_argument("dumps", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    worker, runs, features_of = Worker(dump=False), [], {}
    for part, job in read_plan(given.plan):
        if (job.source, job.target) not in TASKS[job.data]:
            continue
        stored, archive = read_dump(given.dumps, part["name"])
        key = (job.data, job.shift, job.source, job.target)
        if key not in features_of:
            embed_all(part, job)
            features_of[key] = signs_of(worker, part, job)
        results, member = stored(job)
        for one in results:
            if one.refine != "none":
                runs.append(describe(one, archive.read(member), features_of[key], job.shift))
    gates = itertools.product(
        np.arange(0.9, 2.3, 0.1).round(2),
        (0.25, 0.5, 0.75, 1.0, 1.25),
        MARGIN_WEIGHTS,
        GAIN_WEIGHTS,
        BUDGETS,
    )
    rows = []
    for opened, width, *others in gates:
        gate = (float(opened), float(opened) + width, *others)
        rows.append((*gate, *measure(runs, gate)))
    rows.sort(key=lambda row: (row[7] >= KEPT, row[5] + 0.25 * row[6]), reverse=True)
    lines = [f"{len(runs)} runs. Gates that keep {KEPT:.0%} come first.\n"]
    lines += ["| open | closed | margin × | gain × | budget | mean of four | mean few | kept |"]
    lines += ["|---:|---:|---:|---:|---:|---:|---:|---:|"]
    lines += ["| " + " | ".join(f"{x:.4g}" for x in row) + " |" for row in rows[:30]]
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "gates.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
