"""One process of `test_distributed.py`.

Usage: `python -m tests.utils.distributed_worker TASK OUT METHOD …`.

Run by a launcher, or alone as the single process to compare with.
"""

import json
import sys
from pathlib import Path

import torch

from tests.tasks import Task
from unida import load
from unida.cli.main import main as unida
from unida.data.samples import Skipped
from unida.training.predictions import prediction_lines
from unida.training.run_folder import write_lines, write_text
from unida.utils import distributed

STEPS = 5
OPTIONS = {"steps": STEPS, "log_every": 1, "checkpoint_every": STEPS, "reject": "own"}


def main(root: Path, out: Path, methods: list[str]) -> None:
    torch.set_num_threads(1)
    task = Task(root / "source", root / "target")
    for name in methods:
        method, _, frozen = name.partition("+")
        options = OPTIONS | {"method": method, "cache_dir": str(out / "cache")}
        assert unida(["adapt", *task.arguments(out / name, frozen=bool(frozen), **options)]) == 0
    write_text(out / "processes.txt", str(distributed.world_size()))
    # Prediction by all processes: 80 images and a bad one.
    model = load(out / methods[0], "cpu")
    skipped: list[Skipped] = []
    predictions = model.predict([task.target, root / "bad.png"], skipped=skipped)
    write_lines(out / "labels.csv", prediction_lines(predictions))
    write_text(out / "skipped.txt", "\n".join(str(one.path) for one in skipped))
    for name in (methods[0], "uniot"):  # uniot is transductive
        features: list[torch.Tensor] = []
        model = load(out / name, "cpu")
        model.score(task.target, of_backbone=features)
        torch.save(torch.cat(features), out / f"{name}.pt")
        rules = model.refit_rules(task.target)[0].rules
        content = {key: rule.to_json() for key, rule in rules.items()}
        write_text(out / f"{name}.json", json.dumps(content))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
