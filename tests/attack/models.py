"""Model files and weight files that are damaged, edited or made to run code."""

import json
import os
import pickle
import random
import struct
from pathlib import Path
from typing import Any

import torch

from tests.attack.place import Case, Place, flip_bits
from tests.attack.values import changed

MARK = "code-was-run"


class RunsCode:
    """Makes an empty file where a pickle of it is loaded."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, tuple[str, int]]:
        return os.mknod, (str(self.place), 0o600)


def split(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The header and the tensors of a safetensors file."""
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def join(header: dict[str, Any], tensors: bytes) -> bytes:
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + tensors


def _description(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    header, tensors = split(content)
    description = json.loads(header["__metadata__"]["unida"])
    for _ in range(rng.choice((1, 1, 2))):
        description, what = changed(description, rng)
    header["__metadata__"]["unida"] = json.dumps(description)
    return join(header, tensors), f"description: {what}"


def _backbone(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    """The network of a library, of sizes that the file chooses."""
    header, tensors = split(content)
    description = json.loads(header["__metadata__"]["unida"])
    spec = rng.choice(
        (
            {"name": "embeddings", "out_features": rng.choice((0, 1, 2**40, -1, "x"))},
            {"name": f"resnet{rng.choice((18, 50, 51))}"},
            {"name": "timm:resnet18", "config": {}},
            {"name": "hf:x", "config": {"model_type": "resnet", "depths": [10**9]}},
            {"name": "hf:x", "config": {"model_type": "vit", "hidden_size": 10**9}},
            {"name": "hf:x", "config": {"model_type": rng.choice(("bert", "none", 1))}},
            {},
        )
    )
    description["backbone"], what = json.dumps(spec), f"backbone {spec}"
    header["__metadata__"]["unida"] = json.dumps(description)
    return join(header, tensors), what


def _header(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    header, tensors = split(content)
    name = rng.choice([name for name in header if name != "__metadata__"])
    entry = header[name]
    how = rng.randrange(6)
    if how == 0:
        entry["dtype"] = rng.choice(("F16", "BF16", "I64", "U8", "F64", "X", "BOOL", "F8_E4M3"))
    elif how == 1:
        entry["shape"], _ = changed(entry["shape"], rng)
    elif how == 2:
        entry["data_offsets"], _ = changed(entry["data_offsets"], rng)
    elif how == 3:
        del header[name]
    elif how == 4:
        header[rng.choice(("x", name + "x", "x" * 1000))] = header.pop(name)
    else:
        header["__metadata__"], _ = changed(header["__metadata__"], rng)
    return join(header, tensors), f"header: change {how} of {name}"


def _other_tensor(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    """A tensor of the right size that holds what no training wrote."""
    header, tensors = split(content)
    name = rng.choice([n for n in header if n != "__metadata__" and header[n]["dtype"] == "F32"])
    start, end = header[name]["data_offsets"]
    value = rng.choice((float("nan"), float("inf"), -1.0, 0.0, 1e38))
    damaged = bytearray(tensors)
    for i in range(start, end, 4):
        damaged[i : i + 4] = struct.pack("<f", value)
    return join(header, bytes(damaged)), f"{name} = {value}"


def _flipped(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    (length,) = struct.unpack("<Q", content[:8])
    last = rng.choice((8, 8 + length, len(content)))
    return flip_bits(content, rng, last=last), f"bits of the first {last} flipped"


def _truncated(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    n = rng.choice((rng.randrange(64), rng.randrange(len(content))))
    return content[:n], f"truncated to {n}"


def _nested(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    header, tensors = split(content)
    header["__metadata__"]["unida"] = "[" * rng.choice((1000, 200_000))
    return join(header, tensors), "deep JSON"


DAMAGES = (
    *(_description, _description, _description, _description),
    *(_backbone, _header, _header, _other_tensor, _flipped, _flipped, _truncated, _nested),
)


def model(rng: random.Random, place: Place, folder: Path) -> Case:
    """A damaged model, that images are to be labelled with."""
    base = rng.choice((place.finished, place.finished, place.earlier))
    content, what = rng.choice(DAMAGES)((base / "model.safetensors").read_bytes(), rng)
    file = folder / "model.safetensors"
    file.write_bytes(content)
    to = str(folder / "labels.csv")
    command = ["predict", str(file), str(place.images), "--to", to]
    if rng.random() < 0.2:
        command += ["--refit-rule"]
    if rng.random() < 0.1:
        command = ["adapt", "--source", str(place.task.source), "--target", str(place.images)]
        command += ["--backbone", "small_cnn", "--weights", str(file), "--out", str(folder / "out")]
        command += ["--steps", "1", "--batch", "2", "--image-size", "8", "--no-report"]
    return Case(f"{base.name}: {what}", command)


def weights(rng: random.Random, place: Place, folder: Path) -> Case:
    """Weights to start from, which may be anything that torch or pickle reads."""
    file = folder / f"weights{rng.choice(('.pt', '.pth', '.bin', '', '.safetensors'))}"
    how = rng.randrange(6)
    contents: list[Any] = [
        RunsCode(folder / MARK),
        {"state_dict": {"conv.weight": RunsCode(folder / MARK)}},
        {"x": torch.zeros(1)},
        [torch.zeros(1)],
        {1: torch.zeros(1)},
        {"model": {}},
    ]
    if rng.random() < 0.3:
        file.write_bytes(pickle.dumps(contents[how]))
    else:
        torch.save(contents[how], file)
    if rng.random() < 0.3:
        file.write_bytes(flip_bits(file.read_bytes(), rng))
    command = ["adapt", "--source", str(place.task.source), "--target", str(place.images)]
    command += ["--backbone", "small_cnn", "--weights", str(file), "--out", str(folder / "out")]
    command += ["--steps", "1", "--batch", "2", "--image-size", "8", "--no-report"]
    return Case(f"{file.name}: content {how}", command)
