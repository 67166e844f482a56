"""What bf16 and half-precision files change: labels and H of one model on the same images.

    python benchmarks/scripts/cpu_precision.py /work/data/office-caltech10/amazon \\
        /work/data/office-caltech10/webcam --weights /work/weights/resnet50-imagenet-v1.safetensors

Heads are trained on the embeddings of a source without some of its classes, which are unknown then.
The model is stored as it is and in half precision; the images are scored in each.
"""

import argparse
import csv
import tempfile
from pathlib import Path
from typing import Any

import machine
import numpy as np
import torch

from unida.config import CpuPrecision
from unida.data.samples import read_labelled
from unida.evaluation.evaluate import compare, predicted_labels
from unida.model import Model, load
from unida.pipeline import adapt
from unida.types import IntArray, Scored
from unida.utils.process import reuse_memory

WAYS: dict[str, tuple[CpuPrecision, bool]] = {
    "fp32": ("fp32", False),
    "bf16": ("bf16", False),
    "fp32, half-precision file": ("fp32", True),
}


def main(argv: list[str] | None = None) -> None:
    parser = machine.parser(__doc__)
    parser.set_defaults(device="cpu")
    parser.add_argument("source", type=Path, help="folder with a sub-folder a class")
    parser.add_argument("target", type=Path)
    parser.add_argument("--backbone", default="resnet50-v1")
    parser.add_argument("--weights", default="none")
    parser.add_argument("--known", type=int, default=5, help="classes, the first by name")
    parser.add_argument("--per-class", type=int, default=10**6, help="images of a class at most")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=36)
    parser.add_argument("--image-size", type=int, default=224)
    args = parser.parse_args(argv)
    device = machine.by_device(args, {}, {})
    reuse_memory()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(args, Path(folder))
    machine.show("Precision", rows, list(rows[0]))
    machine.write(args, "cpu_precision", device, rows)


def measure(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    target = read_labelled(args.target)
    assert target.labels is not None
    number = np.concatenate(
        [np.flatnonzero(target.labels == k)[: args.per_class] for k in range(len(target.classes))]
    )
    paths = [target.paths[i] for i in number]
    names = np.array([target.classes[target.labels[i]] for i in number])
    model = adapt(
        _list(args.source, folder / "source.csv", args.known, args.per_class),
        _target(paths, folder / "target.txt"),
        folder / "run",
        backbone=args.backbone,
        weights=args.weights,
        frozen=True,
        steps=args.steps,
        batch=args.batch,
        image_size=args.image_size,
        cache_dir=str(folder / "cache"),
        device="cpu",
        report=False,
    )
    model.save(folder / "half.safetensors", half=True)
    rows: list[dict[str, Any]] = []
    first: tuple[Scored, IntArray] | None = None
    for name, (precision, half) in WAYS.items():
        model = load(folder / ("half.safetensors" if half else "run"), "cpu", precision)
        scored, labels = _score(model, paths)
        first = first or (scored, labels)
        own = {model.reject: model.rule()}
        score = compare(scored, names, model.classes, own).scores[model.reject]
        gap = np.linalg.norm(scored.features - first[0].features, axis=1)
        size = np.linalg.norm(first[0].features, axis=1)
        rows.append(
            {
                "precision": name,
                "images": len(paths),
                "other_labels": int((labels != first[1]).sum()),
                "h": score.h,
                "largest_feature_difference": float((gap / size).max()),
            }
        )
    return rows


@torch.inference_mode()
def _score(model: Model, paths: list[Path]) -> tuple[Scored, IntArray]:
    _, scored = model.score(paths)
    return scored, predicted_labels(scored, model.rule())


def _list(root: Path, file: Path, known: int, most: int) -> Path:
    """Write a CSV of images of the first classes."""
    classes = sorted(path for path in root.iterdir() if path.is_dir())[:known]
    rows = [(image, c.name) for c in classes for image in sorted(c.iterdir())[:most]]
    with file.open("w", newline="") as out:
        csv.writer(out).writerows([("path", "label"), *rows])
    return file


def _target(paths: list[Path], file: Path) -> Path:
    file.write_text("".join(f"{path}\n" for path in paths))
    return file


if __name__ == "__main__":
    main()
