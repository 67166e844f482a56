"""Predictions of a frozen model on images whose embeddings are in the cache folder, and on others.

    python benchmarks/scripts/cached.py --images DIR --backbone resnet50-v1 --weights FILE

DIR has class folders. A frozen run of a few steps embeds some of the images; its model then labels
the same files with the cache folder and without it. Files are decoded in both cases.
"""

import dataclasses
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import machine
import numpy as np

from unida import load
from unida.data.samples import Samples, read_labelled
from unida.methods.presets import configure
from unida.model import Model
from unida.pipeline import run_adaptation
from unida.types import FloatArray

SMALL = {"count": 300}
FULL = {"count": 1200}


def main(argv: Sequence[str] | None = None) -> None:
    parser = machine.parser(__doc__)
    parser.add_argument("--images", type=Path, required=True, help="class folders")
    parser.add_argument("--backbone", default="resnet50")
    parser.add_argument("--weights", help="of the backbone; by default the published ones")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--count", type=int, help="images; by default 300 or, on a GPU, 1,200")
    args = parser.parse_args(argv)
    device = machine.by_device(args, SMALL, FULL)
    samples = read_labelled(args.images)
    some = samples.keep(np.linspace(0, len(samples) - 1, args.count).astype(np.int64), ())
    with tempfile.TemporaryDirectory() as folder:
        model = train(some, Path(folder), args)
        with_cache, cached = label(model, some)
        without, computed = label(dataclasses.replace(model, cache_dir=None), some)
    row = {
        "backbone": args.backbone,
        "images": len(some),
        "seconds_cached": with_cache,
        "seconds_computed": without,
        "times_as_fast": without / with_cache,
        "largest_difference": float(np.abs(cached - computed).max()),
    }
    machine.show("predictions", [row], row)
    args.images = args.images.name  # folders of this machine are nobody's business
    args.weights = Path(args.weights).name if args.weights else None
    machine.write(args, "cached", device, [row])


def train(samples: Samples, folder: Path, args: Any) -> Model:
    """Train on the images as source and target; their embeddings are in the cache folder then."""
    assert samples.labels is not None
    rows = [f"{path},{k}\n" for path, k in zip(samples.paths, samples.labels, strict=True)]
    (folder / "images.csv").write_text("path,label\n" + "".join(rows))
    config = configure(
        "source_only",
        source=folder / "images.csv",
        target=folder / "images.csv",
        out=folder / "run",
        cache_dir=folder / "cache",
        frozen=True,
        backbone=args.backbone,
        weights=args.weights,
        image_size=args.image_size,
        device=args.device,
        steps=5,
        batch=4,
        report=False,
    )
    run_adaptation(config)
    return load(folder / "run", args.device)


def label(model: Model, samples: Samples) -> tuple[float, FloatArray]:
    """Predict; return the seconds and the unknown scores."""
    began = time.perf_counter()
    predictions = model.predict(samples.paths)
    return time.perf_counter() - began, np.array([one.unknown_score for one in predictions])


if __name__ == "__main__":
    main()
