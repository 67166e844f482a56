"""Runs `unida adapt` on Office-Home UNDA tasks, several side by side, and scores each last step.

    python benchmarks/office_home/run.py --data DIR --out DIR --jobs FILE [--at-once 6]

DIR has the domains as folders (`Art/Alarm_Clock/00001.webp`) or as tars of that name. Every line
of the jobs file is `TASK METHOD SEED [KEY=VALUE ...]`, such as `Art-Product san 0 lam=0.3`; a key
that starts with @ is an option of the run (`@steps=500`). One JSON line a job goes to
OUT/results.jsonl as it ends. Target labels are used for scoring only; `oracle_h`, the best
threshold by target labels, is for reference.
"""

import argparse
import csv
import dataclasses
import json
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

SOURCE, TARGET = range(15), [*range(10), *range(15, 65)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=Path)
    parser.add_argument("--at-once", type=int, default=6)
    parser.add_argument("--job", nargs="+")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.job:
        result = run_job(args.data, args.out, args.job)
        with (args.out / "results.jsonl").open("a") as file:
            file.write(json.dumps(result) + "\n")
        return
    unpack(args.data)
    jobs = [line.split() for line in args.jobs.read_text().splitlines() if line.strip()]
    running: list[subprocess.Popen[bytes]] = []
    for number, job in enumerate(jobs):
        while len(running) >= args.at_once:
            time.sleep(0.5)
            running = [process for process in running if process.poll() is None]
        command = [sys.executable, __file__, "--data", args.data, "--out", args.out, "--job", *job]
        log = (args.out / f"job-{number:02}.log").open("wb")
        running.append(subprocess.Popen([str(c) for c in command], stdout=log, stderr=log))
    for process in running:
        process.wait()


def unpack(data: Path) -> None:
    for tar in data.glob("*.tar"):
        if not (data / tar.stem).exists():
            with tarfile.open(tar) as file:
                file.extractall(data, filter="data")


def write_split(data: Path, domain: str, classes: Any, path: Path) -> None:
    """A CSV of the images of some classes, numbered in alphabetical order."""
    names = sorted(folder.name for folder in (data / domain).iterdir())
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("path", "label"))
        for k in classes:
            for image in sorted((data / domain / names[k]).iterdir()):
                writer.writerow((image.resolve(), names[k]))


def run_job(data: Path, out: Path, job: list[str]) -> dict[str, Any]:
    import numpy as np
    from sklearn.metrics import roc_auc_score

    from unida import adapt
    from unida.assess import assess, score_rule
    from unida.reject import Rule

    task, method, seed, *pairs = job
    source, target = task.split("-")
    folder = out / "-".join(job).replace("=", "_").replace("/", "_")
    folder.mkdir()
    write_split(data, source, SOURCE, folder / "source.csv")
    write_split(data, target, TARGET, folder / "target.csv")
    given = dict(pair.split("=", 1) for pair in pairs)
    options = {key[1:]: value for key, value in given.items() if key[0] == "@"}
    settings = {key: value for key, value in given.items() if key[0] != "@"}
    began = time.monotonic()
    model = adapt(
        folder / "source.csv",
        folder / "target.csv",
        folder / "run",
        method=method,
        seed=int(seed),
        settings=settings,
        **({"backbone": "resnet50-v1", "steps": 1000} | options),
    )
    seconds = time.monotonic() - began
    result = assess(model, folder / "target.csv")
    unknown = result.labels == len(model.classes)
    scores = result.scored.unknown_score
    thresholds = np.quantile(scores, np.linspace(0, 1, 201))
    oracle = max(score_rule(result.scored, Rule("", t, ""), result.labels).h for t in thresholds)
    return {
        "task": task,
        "method": method,
        "seed": int(seed),
        "settings": settings,
        "options": options,
        "seconds": round(seconds, 1),
        "auroc": roc_auc_score(unknown, scores),
        "oracle_h": oracle,
        "closed": float((result.scored.probs.argmax(1) == result.labels)[~unknown].mean()),
        "rules": {name: dataclasses.asdict(rule) for name, rule in model.rules.items()},
        "scores": {name: dataclasses.asdict(s) for name, s in result.scores.items()},
    }


def show(path: Path) -> None:
    """Prints results.jsonl as a short table."""
    print(f"{'task':20} {'auroc':>5} {'own':>5} {'mixt':>5} {'orac':>5} {'clos':>5}   s")
    for line in path.read_text().splitlines():
        r = json.loads(line)
        numbers = (r["auroc"], *(r["scores"][k]["h"] for k in ("own", "mixture")), r["oracle_h"])
        cells = " ".join(f"{100 * v:5.1f}" for v in (*numbers, r["closed"]))
        extra = " ".join(
            f"{k}={v}" for k, v in (r["settings"] | r["options"]).items() if k != "weights"
        )
        print(f"{r['task']:20} {cells} {r['seconds']:4.0f} {r['method']} {r['seed']} {extra}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--show"]:
        show(Path(sys.argv[2]))
    else:
        main()
