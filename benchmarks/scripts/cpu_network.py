"""A network on a CPU, evaluated by what unida picks, by PyTorch, onnxruntime and OpenVINO.

    python benchmarks/scripts/cpu_network.py
    python benchmarks/scripts/cpu_network.py --networks resnet50-v1 --rounds 20

All take turns on the same images, so that whatever slows the machine down slows all of them. A
runtime that is not installed is left out. Weights are random: arithmetic takes as long.
"""

import contextlib
import io
import logging
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import machine
import torch
from torch import Tensor, nn

from unida.models.backbones import cpu
from unida.models.backbones.base import Backbone, _Normalised
from unida.utils.process import reuse_memory

Run = Callable[[Tensor], Tensor]


def by_unida(network: str, precision: cpu.CpuPrecision, installed: bool = True) -> Run:
    """Evaluate as `unida embed`, `predict` and `evaluate` do, with the extra or without."""
    backbone = _build(network)
    backbone.cpu_precision = precision
    with_extra = cpu.is_installed() and installed

    def run(images: Tensor) -> Tensor:
        with (
            mock.patch.object(cpu, "is_installed", return_value=with_extra),
            backbone.evaluating(cpu.MIN_IMAGES),
        ):
            return backbone(images)

    return run


def by_pytorch(network: str, dtype: torch.dtype | None = None) -> Run:
    """The network as it is, in the layout that is fastest on a CPU."""
    backbone = _build(network)

    def run(images: Tensor) -> Tensor:
        with backbone.precision(dtype):
            return backbone(images)

    return run


def by_compiling(network: str) -> Run:
    backbone = _build(network)
    return torch.compile(backbone, dynamic=False)


def by_onnxruntime(network: str, some: Tensor, threads: int) -> Run:
    import onnxruntime

    with torch.inference_mode(False), torch.no_grad():
        made = torch.onnx.export(_whole(network), (some.clone(),), dynamo=True, verbose=False)
    assert made is not None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        made.model_proto.SerializeToString(), options, ["CPUExecutionProvider"]
    )
    name = session.get_inputs()[0].name
    return lambda images: torch.from_numpy(session.run(None, {name: images.numpy()})[0])


def by_openvino(network: str, some: Tensor, threads: int, hint: str | None) -> Run:
    """OpenVINO by itself, for whole batches; `hint` is a precision, None its own choice."""
    import openvino

    with torch.inference_mode(False), torch.no_grad():
        model = openvino.convert_model(_whole(network), example_input=some.clone())
    model.reshape(list(some.shape))
    options: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    options |= {"INFERENCE_PRECISION_HINT": hint} if hint else {}
    compiled = openvino.Core().compile_model(model, "CPU", options)
    return lambda images: torch.from_numpy(compiled(images.numpy())[0].copy())


def _whole(network: str) -> nn.Module:
    return _Normalised(_build(network))


def _build(network: str) -> Backbone:
    """The same random weights every time."""
    torch.manual_seed(0)
    return machine.build_backbone(network).eval()


def ways(network: str, some: Tensor, threads: int) -> dict[str, Callable[[], Run]]:
    return {
        "unida": lambda: by_unida(network, "fp32"),
        "unida without the extra": lambda: by_unida(network, "fp32", installed=False),
        "PyTorch": lambda: by_pytorch(network),
        "torch.compile": lambda: by_compiling(network),
        "onnxruntime": lambda: by_onnxruntime(network, some, threads),
        "OpenVINO fp32": lambda: by_openvino(network, some, threads, "f32"),
        "unida bf16": lambda: by_unida(network, "bf16"),
        "PyTorch bf16": lambda: by_pytorch(network, torch.bfloat16),
        "OpenVINO default": lambda: by_openvino(network, some, threads, None),
    }


@torch.inference_mode()
def compare(network: str, wanted: list[str], images: Tensor, rounds: int) -> list[dict[str, Any]]:
    """Return images a second of every way, and by how much features differ from PyTorch's."""
    batch = len(images)
    runs: dict[str, Run] = {}
    starts: dict[str, float] = {}
    for name, make in ways(network, images, torch.get_num_threads()).items():
        if name in wanted:
            begin = time.process_time()
            try:
                runs[name] = make()
                runs[name](images)
            except Exception as error:  # not installed, no compiler, …
                print(f"{network}: {name} is left out ({type(error).__name__}: {error})"[:200])
                runs.pop(name, None)
                continue
            starts[name] = time.process_time() - begin
            runs[name](images)
    wall: dict[str, list[float]] = {name: [] for name in runs}
    own: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            begin, begin_own = time.perf_counter(), time.process_time()
            run(images)
            wall[name].append(time.perf_counter() - begin)
            own[name].append(time.process_time() - begin_own)
    rate = {name: batch / statistics.median(times) for name, times in wall.items()}
    by_core = {name: batch / statistics.median(times) for name, times in own.items()}
    fastest, least = (max(r[n] for n in r if _is_exact(n)) for r in (rate, by_core))
    expected = by_pytorch(network)(images)
    return [
        {
            "network": network,
            "way": name,
            "images_per_second": rate[name],
            "images_per_cpu_second": by_core[name],
            "over_fastest": rate[name] / fastest,
            "over_fastest_by_cpu": by_core[name] / least,
            "start_cpu_seconds": starts[name],
            "difference": float((run(images) - expected).norm() / expected.norm()),
        }
        for name, run in runs.items()
    ]


def _is_exact(name: str) -> bool:
    return not name.endswith(("bf16", "default"))


def main(argv: list[str] | None = None) -> None:
    parser = machine.parser(__doc__)
    parser.set_defaults(device="cpu")
    names = list(ways("", torch.empty(0), 0))
    parser.add_argument("--networks", type=machine.words, default=["resnet50-v1", "vit-small"])
    parser.add_argument("--ways", type=machine.subset_of(names), default=names)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args(argv)
    device = machine.by_device(args, {}, {})
    reuse_memory()
    logging.getLogger("openvino").setLevel(logging.ERROR)
    images = torch.rand(args.batch, 3, args.side, args.side)
    rows: list[dict[str, Any]] = []
    for network in args.networks:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            rows += compare(network, args.ways, images, args.rounds)
    machine.show("A network on the CPU", rows, list(rows[0]))
    machine.write(args, "cpu_network", device, rows)


if __name__ == "__main__":
    main()
