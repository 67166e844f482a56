"""Three hypotheses about OVANet's distance to its paper: frozen ResNet-50, a task, three seeds.

    python benchmarks/scripts/office_home/hypotheses.py DATA WEIGHTS [--task Product-Art]

DATA has a folder a domain. Only one thing differs in each row: the precision the network computes
in, how source images are drawn, or how target images are shown while the heads are trained. All are
scored on plain images, so the first row is that of the tables.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

import unida
from unida.data.augmentations import EVAL_VIEW, WEAK_VIEW, View, make_view, strong_view
from unida.data.decode import decode_file
from unida.data.sampling import Shuffled
from unida.evaluation.evaluate import compare, rank
from unida.models.backbones import build_backbone
from unida.protocols.tasks import load_protocol, parse_tasks
from unida.protocols.trees import find_images
from unida.types import FloatArray, IntArray
from unida.utils.process import reuse_memory
from unida.utils.rng import generator

Embed = Callable[[Tensor, View, torch.dtype | None], FloatArray]


class Uniform(Shuffled):
    """Source images drawn uniformly, so that common classes are drawn more often."""

    def __init__(self, labels: IntArray, batch: int, seed: int) -> None:
        super().__init__(len(labels), batch, seed)


def embedder(weights: str) -> Embed:
    """Return a function that embeds images in a view and precision."""
    backbone = build_backbone("resnet50-v1", weights).eval()

    @torch.inference_mode()
    def embed(images: Tensor, view: View, dtype: torch.dtype | None) -> FloatArray:
        with backbone.precision(dtype):
            parts = [
                backbone(make_view(view, part, 224, generator(0, "hypotheses", number)))
                for number, part in enumerate(images.split(64))
            ]
        return torch.cat(parts).numpy()

    return embed


def read(data: Path, domain: str, classes: tuple[str, ...]) -> tuple[Tensor, np.ndarray]:
    """Return pixels of all images of these classes, and their class names."""
    images = find_images(load_protocol("office-home"), domain, data).images
    pairs = [(path, name) for name in classes for path in images[name]]
    pixels = np.stack([decode_file(path, 256) for path, _ in pairs])
    return torch.from_numpy(pixels), np.array([name for _, name in pairs])


def heads(
    source: FloatArray, labels: np.ndarray, shown: FloatArray, plain: FloatArray, truth: np.ndarray
) -> str:
    """Return H (own rule), known, unknown, AUROC and closed accuracy of OVANet's heads in %."""
    runs = []
    for seed in range(3):
        adapter = unida.UniversalAdapter("ovanet", steps=1000, random_state=seed, reject="own")
        model = adapter.set_params(options={"holdout": 0.0}).fit(source, labels, shown).model_
        found = compare(model.score(plain)[1], truth, model.classes, model.rules)
        score, ranking = found.scores["own"], rank(found)
        runs.append((score.h, score.known, score.unknown, ranking.auroc, ranking.closed))
    columns = [[100 * value for value in column] for column in zip(*runs, strict=True)]
    return " | ".join(f"{mean(column):.1f} ± {stdev(column):.1f}" for column in columns)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("weights")
    parser.add_argument("--task", default="Product-Art")
    args = parser.parse_args(argv)
    reuse_memory()
    protocol = load_protocol("office-home")
    (source, target), split = parse_tasks(protocol, args.task)[0], protocol.splits["unda"]
    of_source, labels = read(args.data, source, split.source)
    of_target, truth = read(args.data, target, split.target)
    embed = embedder(args.weights)
    x, y = embed(of_source, EVAL_VIEW, None), embed(of_target, EVAL_VIEW, None)
    print(f"OVANet, {source} → {target}, UNDA, heads on a frozen ResNet-50, 1,000 steps, 3 seeds\n")
    print("| | H own | known | unknown | AUROC | closed |\n|---|---:|---:|---:|---:|---:|")

    def row(name: str, train: FloatArray, shown: FloatArray, plain: FloatArray) -> None:
        print(f"| {name} | {heads(train, labels, shown, plain, truth)} |", flush=True)

    row("as in the tables", x, y, y)
    with patch("unida.training.loop.Balanced", Uniform):
        row("source images drawn uniformly, not by class", x, y, y)
    x_low, y_low = (embed(images, EVAL_VIEW, torch.bfloat16) for images in (of_source, of_target))
    row("the network in bf16", x_low, y_low, y_low)
    row("target shown in random crops, mirrored", x, embed(of_target, WEAK_VIEW, None), y)
    row("target shown in crops of other colours", x, embed(of_target, strong_view(0.7), None), y)


if __name__ == "__main__":
    main()
