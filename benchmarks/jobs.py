"""What the benchmarks share: jobs run side by side in processes, one JSON line a result.

A job is a line `TASK METHOD SEED [KEY=VALUE ...]`; a key that starts with @ is an option of the
run (`@steps=500`), any other a setting of the method. Target labels are used for scoring the last
step only; `oracle_h`, H at the best threshold by target labels, is for reference.
"""

import dataclasses
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any


def run_side_by_side(
    script: str, out: Path, jobs: list[str], at_once: int, more: list[str]
) -> None:
    """Starts `script --out OUT --job JOB` for every job, `at_once` at a time; logs beside."""
    running: list[subprocess.Popen[bytes]] = []
    for number, job in enumerate(jobs):
        while len(running) >= at_once:
            time.sleep(0.5)
            running = [process for process in running if process.poll() is None]
        command = [sys.executable, script, "--out", str(out), *more, "--job", *job.split()]
        with (out / f"job-{number:03}.log").open("wb") as log:
            running.append(subprocess.Popen(command, stdout=log, stderr=log))
    for process in running:
        process.wait()


def run_job(job: list[str], source: Path, target: Path, out: Path, **setup: Any) -> dict[str, Any]:
    """Adapts, scores the last step under every rule, and describes the run."""
    import numpy as np
    from sklearn.metrics import roc_auc_score

    from unida import __version__, adapt
    from unida.assess import assess, score_rule
    from unida.reject import Rule

    task, method, seed, *pairs = job
    given = dict(pair.split("=", 1) for pair in pairs)
    options = {key[1:]: value for key, value in given.items() if key[0] == "@"}
    settings = {key: value for key, value in given.items() if key[0] != "@"}
    began = time.monotonic()
    model = adapt(
        source, target, out, method=method, seed=int(seed), settings=settings, **(setup | options)
    )
    seconds = time.monotonic() - began
    result = assess(model, target)
    unknown = result.labels == len(model.classes)
    scores = result.scored.unknown_score
    thresholds = np.quantile(scores, np.linspace(0, 1, 201))
    oracle = max(score_rule(result.scored, Rule("", t, ""), result.labels).h for t in thresholds)
    weights = options.pop("weights", None)
    return {
        "task": task,
        "method": method,
        "seed": int(seed),
        "settings": settings,
        "options": options | ({"weights": Path(weights).name} if weights else {}),
        "scores": {name: dataclasses.asdict(s) for name, s in result.scores.items()},
        "rules": {name: dataclasses.asdict(rule) for name, rule in model.rules.items()},
        "auroc": float(roc_auc_score(unknown, scores)),
        "oracle_h": oracle,
        "closed": float((result.scored.probs.argmax(1) == result.labels)[~unknown].mean()),
        "seconds": round(seconds, 1),
        "parameters": sum(p.numel() for p in model.method.parameters()),
        "machine": {
            "unida": __version__,
            "commit": _commit(),
            "device": str(model.device),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
    }


def append(path: Path, result: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(result) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def markdown(results: list[dict[str, Any]], title: str) -> str:
    """A table, a row for every task, method with its settings, and rule: mean ± std over seeds."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for r in results:
        wishes = " ".join(f"{k}={v}" for k, v in r["settings"].items())
        groups.setdefault((r["task"], f"{r['method']} {wishes}".strip()), []).append(r)
    columns = ["task", "method", "rule", "known", "unknown", "H", "balanced H"]
    columns += ["AUROC", "oracle H", "seeds", "seconds"]
    lines = [
        f"# {title}",
        "",
        "Last step, in %, mean ± standard deviation over seeds. 'rule' is the reject rule asked "
        "for. AUROC is that of the unknown score. 'oracle' is H at the best threshold by target "
        "labels, for reference only.",
        "",
        "| " + " | ".join(columns) + " |",
        "|---" * len(columns) + "|",
    ]
    for (task, method), runs in sorted(groups.items()):
        for rule in runs[0]["scores"]:
            fields = ("known", "unknown", "h", "balanced_h")
            cells = [_spread([r["scores"][rule][name] for r in runs]) for name in fields]
            cells += [_spread([r[name] for r in runs]) for name in ("auroc", "oracle_h")]
            cells += [str(len(runs)), f"{mean(r['seconds'] for r in runs):.0f}"]
            lines.append(f"| {task} | {method} | {rule} | {' | '.join(cells)} |")
    commits = ", ".join(sorted({r["machine"]["commit"] for r in results if "machine" in r}))
    return "\n".join([*lines, "", f"Commits: {commits or 'not recorded'}.", ""])


def _spread(values: list[float]) -> str:
    numbers = [100 * v for v in values]
    if len(numbers) == 1:
        return f"{numbers[0]:.1f}"
    return f"{mean(numbers):.1f} ± {stdev(numbers):.1f}"


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
