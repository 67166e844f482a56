"""SAN's own rule against the number of classes K: what L_AIO alone makes of both forms.

    python benchmarks/scripts/own_rule.py OUT

The All-in-One classifier is trained with cross-entropy and L_AIO on Gaussian classes of unit rows,
no target, for several K and numbers of steps. Images with more noise, of the same and of as many
unknown classes, are labelled by the sign of either score (`SANConfig.score`). OUT/own_rule.md has a
table: share of the known and of the unknown images that are rejected.
"""

import argparse
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from machine import describe
from torch import Tensor

from unida.losses import all_in_one
from unida.models.heads import AllInOne, pair_score
from unida.utils.rng import generator

WIDTH, PER_CLASS, BATCH = 128, 20, 36
SOURCE_NOISE, TARGET_NOISE = 0.7, 1.4
"""Length of the noise, where a class mean has length 1."""


def images(means: Tensor, n: int, noise: float, draws: torch.Generator) -> Tensor:
    """Draw `n` images of each class around its mean, of unit length."""
    random = torch.randn(len(means), n, WIDTH, generator=draws) / WIDTH**0.5
    return F.normalize(means[:, None] + noise * random, dim=2).flatten(0, 1)


def rejected(n_classes: int, steps: int, hashed: bool, seed: int) -> dict[str, float]:
    """Train one classifier and return the rejected shares."""
    draws = generator(seed, "own rule", n_classes)
    torch.manual_seed(seed)
    means = F.normalize(torch.randn(2 * n_classes, WIDTH, generator=draws), dim=1)
    x, labels = images(means[:n_classes], PER_CLASS, SOURCE_NOISE, draws), torch.arange(n_classes)
    labels = labels.repeat_interleave(PER_CLASS)
    known, unknown = (images(part, 10, TARGET_NOISE, draws) for part in means.split(n_classes))
    head = AllInOne(WIDTH, n_classes, hashed)
    optimizer = torch.optim.SGD(head.parameters(), 0.01, momentum=0.9, nesterov=True)
    for _ in range(steps):
        some = torch.randint(len(x), (BATCH,), generator=draws)
        closed, pairs = head(x[some])
        aio = all_in_one(pairs, labels[some], 20, "sigmoid", third_weight=1.2)
        loss = F.cross_entropy(closed, labels[some]) + 0.5 * aio
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = {}
    with torch.no_grad():
        for name, rows in (("known", known), ("unknown", unknown)):
            outputs = head(rows)
            for form, score in (("largest", head.unknown_score), ("pair", pair_score)):
                found[f"{form}: {name}"] = float((score(*outputs) >= 0).float().mean())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--classes", type=int, nargs="+", default=[2, 5, 20, 100, 500])
    parser.add_argument("--steps", type=int, nargs="+", default=[1000, 4000])
    given = parser.parse_args()
    rows = []
    for steps in given.steps:
        for n_classes in given.classes:
            row = {"K": n_classes, "steps": steps}
            rows.append(row | rejected(n_classes, steps, True, 0))
            print(rows[-1], flush=True)
    given.out.mkdir(parents=True, exist_ok=True)
    content = {"machine": describe(torch.device("cpu")), "rows": rows}
    (given.out / "own_rule.json").write_text(json.dumps(content, indent=1) + "\n")
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---:|" * len(names)]
    for row in rows:
        cells = (f"{v:.2f}" if isinstance(v, float) else str(v) for v in row.values())
        lines.append("| " + " | ".join(cells) + " |")
    (given.out / "own_rule.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
