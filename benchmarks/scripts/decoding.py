"""Decoding image files: ours against a plain PIL loop, and `stream` against the cached step.

    python benchmarks/scripts/decoding.py
    python benchmarks/scripts/decoding.py --folder photos --images 5000 --threads 2

Without `--folder`, random JPEGs of the size of photos are written first. The ways take turns on the
same files. The last rows train heads on a small network whose images are cached, and decoded anew
for every batch.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import machine
import numpy as np
import torch
from PIL import Image

from unida.config import RunConfig
from unida.data.decode import decode_file
from unida.data.domain import Domain
from unida.data.pixels import ArrayStore, StreamedStore
from unida.data.samples import Samples
from unida.methods.presets import configure
from unida.training.batches import Batches
from unida.utils.parallel import in_order

Way = Callable[[Sequence[Path], int], object]


def plain(paths: Sequence[Path], size: int) -> None:
    """What most training scripts do, one image after the other."""
    for path in paths:
        with Image.open(path) as image:
            np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR))


def ours(paths: Sequence[Path], size: int) -> None:
    for path in paths:
        decode_file(path, size)


def by_threads(paths: Sequence[Path], size: int) -> None:
    for _ in in_order(lambda path: decode_file(path, size), paths):
        pass


WAYS: dict[str, Way] = {"plain PIL loop": plain, "ours": ours, "ours, by threads": by_threads}


def main(argv: list[str] | None = None) -> None:
    parser = machine.parser(__doc__)
    parser.set_defaults(device="cpu")
    parser.add_argument("--folder", type=Path, help="of JPEGs, searched with its sub-folders")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--side", type=int, default=1000, help="of the random JPEGs")
    parser.add_argument("--size", type=int, default=256, help="of a decoded image")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args(argv)
    device = machine.by_device(args, {}, {})
    with tempfile.TemporaryDirectory() as folder:
        paths = _files(args, Path(folder))
        rows = [*decode(paths, args.size, args.rounds), *stream(paths, args, device)]
    machine.show("Decoding", rows, list(rows[0]))
    machine.write(args, "decoding", device, rows)


def _files(args: argparse.Namespace, folder: Path) -> list[Path]:
    if args.folder:
        return sorted(p for p in args.folder.rglob("*") if p.is_file())[: args.images]
    draws = np.random.default_rng(0)
    for i in range(args.images):
        coarse = Image.fromarray(
            draws.integers(0, 256, (args.side // 20 + 1,) * 2 + (3,), np.uint8)
        )
        coarse.resize((args.side, args.side * 3 // 4)).save(folder / f"{i:05d}.jpg", quality=90)
    return sorted(folder.glob("*.jpg"))


def decode(paths: list[Path], size: int, rounds: int) -> list[dict[str, Any]]:
    """Images a second of every way, by the clock and by the processor's."""
    wall: dict[str, list[float]] = {name: [] for name in WAYS}
    own: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(rounds):
        for name, way in WAYS.items():
            begin, begin_own = time.perf_counter(), time.process_time()
            way(paths, size)
            wall[name].append(time.perf_counter() - begin)
            own[name].append(time.process_time() - begin_own)
    by_core = {name: len(paths) / statistics.median(times) for name, times in own.items()}
    return [
        {
            "way": name,
            "images_per_second": len(paths) / statistics.median(wall[name]),
            "images_per_cpu_second": by_core[name],
            "over_plain": by_core[name] / by_core["plain PIL loop"],
        }
        for name in WAYS
    ]


def stream(
    paths: list[Path], args: argparse.Namespace, device: torch.device
) -> list[dict[str, Any]]:
    """Milliseconds of a step on cached and on streamed images, in turns."""
    samples = Samples(tuple(paths), np.arange(len(paths)) % 5, tuple("abcde"))
    streamed = StreamedStore(samples, paths, lambda path: decode_file(path, args.size), args.size)
    cached = ArrayStore(streamed.get(torch.arange(len(paths))))
    domains = {
        "step, cached": Domain(samples, cached, device),
        "step, streamed": Domain(samples, streamed, device),
    }
    times: dict[str, list[float]] = {name: [] for name in domains}
    for _ in range(args.rounds):
        for name, domain in domains.items():
            times[name].append(_seconds(domain, args.steps, device))
    ms = {name: 1000 * statistics.median(found) / args.steps for name, found in times.items()}
    return [{"way": name, "ms": value, "over_cached": value / ms["step, cached"]}
            for name, value in ms.items()]  # fmt: skip


def _seconds(domain: Domain, steps: int, device: torch.device) -> float:
    config: RunConfig = configure(
        method="source_only", backbone="small_cnn", image_size=32, steps=steps, batch=8,
        checkpoint_every=10**9,
    )  # fmt: skip
    backbone = machine.build_backbone("small_cnn")
    sizes = machine.sizes_of(domain, domain, config)
    method = machine.build_method("source_only", (), backbone, sizes, device)
    batches = Batches(domain, domain, config)
    return machine.seconds(
        lambda: machine.drive(method, batches, config, device, lambda *_: None), device
    )


if __name__ == "__main__":
    main()
