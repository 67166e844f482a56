"""What a run is made of: frozen, typed, and a misspelt key is an error."""

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

from unida.errors import UserError, require

C = TypeVar("C")

Precision = Literal["auto", "fp32", "tf32", "bf16"]
CacheMode = Literal["auto", "memory", "disk", "stream"]
Launch = Literal["auto", "eager", "captured", "compiled"]
BatchNorm = Literal["auto", "batch", "stored"]
_CHOICES = {"precision": Precision, "launch": Launch, "cache": CacheMode, "batch_norm": BatchNorm}

WHERE_NOT_WHAT = frozenset(
    {"source", "target", "out", "device", "launch", "cache", "cache_dir", "memory_gb", "log_every"}
    | {"report"}
)
"""Fields of `RunConfig` that have no say in a result: they say where things lie and happen."""


@dataclass(frozen=True)
class RunConfig:
    """Adapts a classifier from labelled source images to unlabelled target images."""

    source: str = ""
    """Labelled images: a folder with one sub-folder a class, a list file ('path label') or a CSV
    with columns path and label."""
    target: str = ""
    """Unlabelled images: any folder tree, list file or CSV. Labels, if any, are not looked at."""
    out: str = ""
    """Folder of the run; new or empty, or with --resume one that holds the run to go on with."""
    method: str = "san"
    """Which method; `unida methods` lists them."""
    settings: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="KEY=VALUE")] = ()
    """Settings of the method, as in --set beta=0.5 lam=0.3."""
    backbone: str = "resnet50"
    """small_cnn, resnet18/34/50/101/152 (add -v1 for the 2015 stride layout), hf:DIRECTORY-OR-ID
    or timm:NAME."""
    weights: str | None = None
    """Backbone weights: a safetensors or torch file, or 'none' to start from scratch. By default
    the published ImageNet weights from the Hugging Face hub (small_cnn: none)."""
    image_size: int = 224
    """Side of the square the network sees, in pixels."""
    steps: int = 2000
    """Optimiser steps."""
    batch: int = 36
    """Images a step and domain, shared by all processes."""
    lr: float = 0.01
    """Learning rate of the heads at the first step; it decays by the inverse rule."""
    backbone_lr: float | None = None
    """Learning rate of the backbone as a factor of lr: by default 0.03 with weights, 1
    without."""
    frozen: bool = False
    """Leave the backbone as it is: embed every image once and train the heads on that. For
    machines without a GPU, and for backbones that are better left alone."""
    frozen_views: int = 0
    """With --frozen: augmented views kept of each image, beside the plain one."""
    batch_norm: BatchNorm = "auto"
    """Statistics of the backbone's batch norm in training: those of the batch, one domain at a
    time, or those stored with its weights, which then stay as they are; auto is stored wherever
    there are weights."""
    momentum: float = 0.9
    """Nesterov momentum."""
    weight_decay: float = 5e-4
    """L2 penalty on all weights."""
    seed: int = 0
    """Everything random follows from it."""
    members: int = 1
    """Models that are trained, each from a seed of its own, and judge together: three are a little
    better than one, at three times the price (of the heads alone, with --frozen)."""
    precision: Precision = "auto"
    """Arithmetic of the backbone; auto is bf16 on a GPU that has it and fp32 elsewhere. Heads and
    losses are always in float32."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    launch: Launch = "auto"
    """How a step reaches a GPU: kernel by kernel (eager), recorded once and launched as one
    (captured), or recorded after the backbone was compiled, which takes a minute at the start and
    pays in long runs. auto is captured where the method allows it."""
    reject: str = "mixture"
    """How 'unknown' is decided in predictions.csv: own, mixture, source[:SHARE] or
    threshold:VALUE; `unida methods` says what they do. `unida predict --reject` may change it."""
    holdout: float = 0.1
    """Share of each class's source images kept out of training, to calibrate confidence on.
    Classes with fewer than 20 images keep all theirs; 0 keeps none out."""
    flip: bool = True
    """Mirror training images at random. Turn off where left and right differ in meaning."""
    jitter: float = 1.0
    """Strength of the colour changes where a method uses them; 0 is none."""
    cache: CacheMode = "auto"
    """Where decoded pixels are kept: in memory, in a memory-mapped file, or nowhere (decoded anew
    for every batch); auto takes the first that fits."""
    memory_gb: float = 4.0
    """Pixels kept in memory at the most, in GiB."""
    cache_dir: str | None = None
    """Folder of decoded pixels and embeddings, for the next run too; by default unida under the
    user's cache folder. It may be deleted; what no run used for a month goes by itself."""
    log_every: int = 50
    """Steps between two lines of metrics.jsonl."""
    checkpoint_every: int = 500
    """Steps between two checkpoints."""
    report: bool = True
    """Write report.html, the run as a page, at the end; `unida report` makes it later."""

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("batch", 2), ("image_size", 8), ("log_every", 1)):
            require(getattr(self, name) >= least, name, getattr(self, name), f"{least} or more")
        require(1 <= self.members <= 100, "members", self.members, "from 1 to 100")
        require(self.frozen_views >= 0, "frozen_views", self.frozen_views, "0 or more")
        require(self.checkpoint_every >= 1, "checkpoint_every", self.checkpoint_every, "1 or more")
        for name in ("lr", "memory_gb"):
            value = getattr(self, name)
            require(0 < value < math.inf, name, value, "more than 0")
        for name in ("weight_decay", "jitter", "backbone_lr"):
            value = getattr(self, name)
            require(value is None or 0 <= value < math.inf, name, value, "0 or more")
        require(0 <= self.holdout <= 0.5, "holdout", self.holdout, "from 0 to 0.5")
        require(0 <= self.momentum < 1, "momentum", self.momentum, "from 0 up to, not including, 1")
        for name, choice in _CHOICES.items():
            value, allowed = getattr(self, name), typing.get_args(choice)
            require(value in allowed, name, value, ", ".join(allowed))

    @property
    def pixel_size(self) -> int:
        """Side of a cached image: crops of `image_size` are cut from it (224 from 256)."""
        return round(self.image_size * 8 / 7)


def to_arguments(config: RunConfig) -> list[str]:
    """Of the `unida adapt` that makes this run again: whatever is not as by default."""
    words = []
    for field in dataclasses.fields(RunConfig):
        value = getattr(config, field.name)
        flag = "set" if field.name == "settings" else field.name.replace("_", "-")
        if value == field.default:
            continue
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", *map(str, value if isinstance(value, tuple) else (value,))]
    return words


def from_mapping(cls: type[C], values: Mapping[str, Any], where: str) -> C:
    """Builds a config from plain values; text is parsed to the field's type.

    Args:
        cls: a dataclass.
        values: field name to value; a name that is no field is an error.
        where: what the values belong to, for the error sentence.
    """
    hints = typing.get_type_hints(cls)
    fields = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for name in values:
        require(name in fields, f"a setting of {where}", name, ", ".join(fields) or "none")
    return cls(**{name: _typed(name, value, hints[name]) for name, value in values.items()})


def parse_settings(cls: type[C], settings: tuple[str, ...], where: str) -> C:
    """Builds a config from `key=value` texts."""
    return from_mapping(cls, split_pairs(settings, where), where)


def split_pairs(settings: tuple[str, ...], where: str) -> dict[str, str]:
    """Key to value of `key=value` texts; each key may come once."""
    values: dict[str, str] = {}
    for text in settings:
        key, sign, value = text.partition("=")
        require(sign == "=", f"a setting of {where}", text, "KEY=VALUE")
        require(key.strip() not in values, f"a setting of {where}", text, "each key once")
        values[key.strip()] = value.strip()
    return values


def to_settings(values: Mapping[str, object]) -> tuple[str, ...]:
    """The `key=value` texts of a mapping, in order of key."""
    return tuple(f"{key}={values[key]}" for key in sorted(values))


def _typed(name: str, value: Any, hint: Any) -> Any:
    """`value` as the type `hint` asks for; Literal, optional and plain scalar types are known."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _typed(name, value, args[0])
    if origin is Literal:
        require(value in args, name, value, ", ".join(map(str, args)))
        return value
    if origin in (typing.Union, types.UnionType):
        inner = next(a for a in args if a is not type(None))
        if value is None or (str(value).lower() == "none" and inner is not str):
            return None
        return _typed(name, value, inner)
    if origin is tuple:
        items = (value,) if isinstance(value, str) else value
        require(isinstance(items, list | tuple), name, value, "a list")
        return tuple(_typed(name, item, args[0]) for item in items)
    if hint is bool:
        truth = {"true": True, "false": False}
        require(str(value).lower() in truth, name, value, "true or false")
        return truth[str(value).lower()]
    try:
        typed = hint(value)
    except (TypeError, ValueError, OverflowError):
        typed = None
    whole = hint is not int or isinstance(value, str) or typed == value  # 2.5 steps are no steps
    require(typed is not None and whole, name, value, f"a value of type {hint.__name__}")
    return typed


def load_config(path: Path) -> RunConfig:
    """Reads the `config.json` of a run."""
    try:
        # A run from before there was `holdout` was trained on all images.
        values = {"holdout": 0.0} | dict(json.loads(path.read_text())["run"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not the config.json of a run ({error!r}).") from None
    return from_mapping(RunConfig, values, str(path))
