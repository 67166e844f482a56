"""Images a second of the server in examples/serving beside plain onnxruntime.

    python benchmarks/scripts/serving.py
    python benchmarks/scripts/serving.py --network resnet50 --clients 4 --rounds 5

The same JPEG files go through the same model, with random weights: from memory by as many threads
as there are clients, and over loopback. Both take turns.
"""

import argparse
import http.client
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import machine
import numpy as np
import onnxruntime
import torch
from PIL import Image, ImageOps

from unida.decision.predictor import Predictor
from unida.decision.rejection import Rule
from unida.export import export_model
from unida.methods.source_only import SourceOnly, SourceOnlyConfig
from unida.model import Model
from unida.types import Sizes

SERVER = Path(__file__).parents[2] / "examples" / "serving"
CLASSES = 25
BOUNDARY = "serving-benchmark"

Files = list[bytes]


def main(argv: list[str] | None = None) -> None:
    parser = machine.parser(__doc__)
    parser.set_defaults(device="cpu")
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batches", type=machine.numbers, default=[1, 16], help="images a request")
    parser.add_argument("--images", type=int, default=64, help="a measurement")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args(argv)
    device = machine.by_device(args, {}, {})
    files = [_jpeg(seed) for seed in range(args.images)]
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.onnx"
        export_model(_model(args.network, args.image_size), model)
        with _serving(model) as port:
            results = [_compare(model, port, files, batch, args) for batch in args.batches]
    columns = ("images_per_request", "plain_images_per_second", "served_images_per_second")
    machine.show("Serving", results, (*columns, "served_over_plain"))
    machine.write(args, "serving", device, results)


def _compare(
    model: Path, port: int, files: Files, batch: int, args: argparse.Namespace
) -> dict[str, Any]:
    """Measure both in turns; the ratio is the median of those of the rounds."""
    requests = [files[i : i + batch] for i in range(0, len(files), batch)]
    plain = _plain(model)
    ways = {"plain": plain, "served": lambda some: _post(port, some)}
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for way in ways.values():
        way(requests[0])  # warm
    for _ in range(args.rounds):
        for name, way in ways.items():
            rates[name].append(len(files) / _seconds(way, requests, args.clients))
    pairs = zip(rates["served"], rates["plain"], strict=True)
    return {
        "network": args.network,
        "images_per_request": batch,
        "plain_images_per_second": statistics.median(rates["plain"]),
        "served_images_per_second": statistics.median(rates["served"]),
        "served_over_plain": statistics.median(served / plain for served, plain in pairs),
        "plain_all": rates["plain"],
        "served_all": rates["served"],
    }


def _seconds(way: Callable[[Files], object], requests: list[Files], clients: int) -> float:
    begin = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(way, requests))
    return time.perf_counter() - begin


def _plain(model: Path) -> Callable[[Files], object]:
    """Return what examples/use_onnx.py does."""
    session = onnxruntime.InferenceSession(model)
    size = int(session.get_modelmeta().custom_metadata_map["size"])

    def predict(files: Files) -> object:
        images = []
        for content in files:
            image = Image.open(io.BytesIO(content))
            image.draft("RGB", (2 * size, 2 * size))
            upright = ImageOps.exif_transpose(image).convert("RGB")
            images.append(np.asarray(upright.resize((size, size), Image.Resampling.BILINEAR)))
        return session.run(None, {"images": np.stack(images)})

    return predict


def _post(port: int, files: Files) -> object:
    """Send images in one form."""
    head = 'Content-Disposition: form-data; name="images"; filename="a.jpg"'
    parts = (f"--{BOUNDARY}\r\n{head}\r\n\r\n".encode() + file + b"\r\n" for file in files)
    body = b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    kind = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    connection.request("POST", "/predict", body, kind)
    answer = connection.getresponse()
    rows = json.loads(answer.read())
    connection.close()
    if answer.status != 200 or len(rows) != len(files):
        raise RuntimeError(f"status {answer.status}: {rows}")
    return rows


@contextmanager
def _serving(model: Path) -> Iterator[int]:
    """Start the server on a free port of 127.0.0.1."""
    command = [sys.executable, "-m", "uvicorn", "app:app", "--app-dir", str(SERVER), "--port", "0"]
    env = os.environ | {"MODEL": str(model)}
    quiet = ["--host", "127.0.0.1", "--no-access-log"]
    with subprocess.Popen([*command, *quiet], env=env, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            found = (re.search(r"running on http://[\d.]+:(\d+)", line) for line in server.stderr)
            yield next(int(match[1]) for match in found if match)
        finally:
            server.terminate()


def _model(network: str, image_size: int) -> Model:
    torch.manual_seed(0)
    sizes = Sizes(n_classes=CLASSES, n_source=100, n_target=100, batch=4, steps=1)
    method = SourceOnly(SourceOnlyConfig(), machine.build_backbone(network), sizes)
    return Model(
        predictor=Predictor(method).eval(),
        method_name="source_only",
        classes=tuple(f"class {k}" for k in range(CLASSES)),
        image_size=image_size,
        pixel_size=round(image_size * 8 / 7),
        rules={"own": Rule("own", 0.0, "")},
        reject="own",
        device=torch.device("cpu"),
    )


def _jpeg(seed: int) -> bytes:
    """Return a picture of 640 × 480 with structure in it."""
    draws = np.random.default_rng(seed)
    small = Image.fromarray(draws.integers(0, 256, (48, 64, 3), dtype=np.uint8))
    content = io.BytesIO()
    small.resize((640, 480), Image.Resampling.BICUBIC).save(content, "JPEG", quality=90)
    return content.getvalue()


if __name__ == "__main__":
    main()
