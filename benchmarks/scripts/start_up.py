"""How long commands take to start: `--help`, and `unida predict` on one image.

    python benchmarks/scripts/start_up.py
    python benchmarks/scripts/start_up.py --backbone resnet50 --rounds 9

Each is a process of its own, and they take turns with one that imports torch alone, with which they
are compared. CPU time is measured too, which other programs do not lengthen.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine
import numpy as np
import torch
from PIL import Image

from unida.config import RunConfig
from unida.decision.predictor import Predictor
from unida.decision.rejection import Rule
from unida.model import Model

TORCH = "import torch"
CLASSES = ("a", "b", "c")


def write_model(backbone: str, folder: Path) -> tuple[Path, Path]:
    """Write an untrained model and an image."""
    net = machine.build_backbone(backbone)
    pixels = machine.random_pixels(9, 4, 0)
    domain = machine.random_domain(pixels, len(CLASSES), torch.device("cpu"))
    sizes = machine.sizes_of(domain, domain, RunConfig())
    method = machine.build_method("san", (), net, sizes, torch.device("cpu"))
    model = Model(
        predictor=Predictor(method).eval(),
        method_name="san",
        classes=CLASSES,
        image_size=224,
        pixel_size=256,
        rules={"own": Rule("own", 0.0, "at zero")},
        reject="own",
        device=torch.device("cpu"),
    )
    model.save(folder / "model.safetensors")
    draws = np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)
    Image.fromarray(draws).save(folder / "image.jpg")
    return folder / "model.safetensors", folder / "image.jpg"


def timed(command: list[str]) -> tuple[float, float]:
    """Return the seconds of a process, and those it used of the processor."""
    before, begin = os.times(), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds, after = time.perf_counter() - begin, os.times()
    used = after.children_user - before.children_user
    return seconds, used + after.children_system - before.children_system


def main(argv: list[str] | None = None) -> None:
    parser = machine.parser(__doc__)
    parser.set_defaults(device="cpu")
    parser.add_argument("--backbone", default="resnet50")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args(argv)
    device = machine.by_device(args, {}, {})
    unida = [sys.executable, "-m", "unida"]
    with tempfile.TemporaryDirectory() as folder:
        model, image = write_model(args.backbone, Path(folder))
        commands = {
            TORCH: [sys.executable, "-c", TORCH],
            "unida --help": [*unida, "--help"],
            "unida adapt --help": [*unida, "adapt", "--help"],
            "unida predict, one image": [*unida, "predict", str(model), str(image)],
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(args.rounds):
            for name, command in commands.items():
                found[name].append(timed(command))
    alone = statistics.median(own for _, own in found[TORCH])
    rows = [
        {
            "command": name,
            "seconds": statistics.median(wall for wall, _ in times),
            "cpu_seconds": (own := statistics.median(own for _, own in times)),
            "over_torch": own / alone,
        }
        for name, times in found.items()
    ]
    machine.show("Start", rows, list(rows[0]))
    machine.write(args, "start_up", device, rows)


if __name__ == "__main__":
    main()
