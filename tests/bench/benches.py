"""A small data set with a protocol of its own, and a bench command that is quick on it."""

from pathlib import Path

import numpy as np
from PIL import Image

from unida.protocols.digits import uci

PROTOCOL = """\
name = "small-digits"
title = "Small digits"
domains = ["dark", "light"]
shared = ["0", "1", "2"]
source_private = ["3"]
target_private = ["8", "9"]

[run]
backbone = "small_cnn"
image_size = 16
batch = 8
lr = 0.02
flip = false
log_every = 2
checkpoint_every = 4
"""


def write_data(root: Path, each: int = 8) -> Path:
    """Two domains of six digits; returns the protocol's file."""
    images, labels = uci()
    for domain, start in (("dark", 0), ("light", each)):
        for digit in (0, 1, 2, 3, 8, 9):
            folder = root / "data" / domain / str(digit)
            folder.mkdir(parents=True)
            for i in np.flatnonzero(labels == digit)[start : start + each]:
                pixels = images[i] if domain == "dark" else images[i] // 2 + 100
                Image.fromarray(pixels).save(folder / f"{i:04}.png")
    protocol = root / "small.toml"
    protocol.write_text(PROTOCOL)
    return protocol


def arguments(protocol: Path, out: Path, *more: str, steps: int = 8) -> list[str]:
    """Of `unida bench`: source_only and san, both tasks, two seeds."""
    return [
        "bench",
        *(str(protocol), "--data", str(protocol.parent / "data"), "--out", str(out)),
        *("--methods", "source_only,san", "--seeds", "2", "--workers", "2"),
        *("--option", f"steps={steps}", "device=cpu"),
        *more,
    ]
