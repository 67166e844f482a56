"""The configuration of a run: frozen, typed, in groups; a misspelt name is an error.

Command-line options and Python's keyword arguments are flat: `RunConfig.from_flat(steps=100)` puts
each into its group. `unida.methods.presets.configure` adds presets and a method's settings.
"""

import dataclasses
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeVar

from unida.errors import require, require_known
from unida.utils.logs import logger
from unida.utils.schedule import SCHEDULES, is_schedule

C = TypeVar("C")

Precision = Literal["auto", "fp32", "tf32", "bf16"]
CacheMode = Literal["auto", "memory", "disk", "stream"]
BatchNorm = Literal["auto", "batch", "stored"]
CpuPrecision = Literal["fp32", "bf16"]
Switch = Literal["auto", "on", "off"]
Refinement = Literal["none", "knn"]

FORMAT = 2
"""Of config.json. 1: all options in one flat mapping, settings as texts."""

ENVIRONMENT = frozenset(
    {"source", "target", "source_model", "out", "device", "cuda_graphs", "compile", "cache"}
    | {"cache_dir", "memory_gb", "log_every", "report", "slim", "tracker"}
)
"""Options that do not change a result: where things lie and run."""


class _Checked:
    """Checks that every `Literal` field has one of its values."""

    def __post_init__(self) -> None:
        for name, hint in typing.get_type_hints(type(self)).items():
            if typing.get_origin(hint) is Literal:
                value, allowed = getattr(self, name), typing.get_args(hint)
                require(value in allowed, name, value, ", ".join(allowed))

    def _at_least(self, least: int, *names: str) -> None:
        for name in names:
            require(getattr(self, name) >= least, name, getattr(self, name), f"{least} or more")

    def _finite(self, *names: str, positive: bool = False) -> None:
        for name in names:
            value = getattr(self, name)
            ok = value is None or ((value > 0 if positive else value >= 0) and value < math.inf)
            require(ok, name, value, "more than 0" if positive else "0 or more")


@dataclass(frozen=True)
class DataConfig(_Checked):
    """Images: where they are, how they are decoded, kept and augmented."""

    source: str = ""
    """Labelled images: a folder with one sub-folder per class, a list file ('path label') or a CSV
    with columns path and label."""
    target: str = ""
    """Unlabelled images: any folder tree, list file or CSV. Labels, if any, are not used."""
    source_model: str | None = None
    """Instead of a source, for glc and lead: the run folder or model.safetensors of a glc or lead
    model. Its network is adapted with target images alone; no source image is read."""
    image_size: int = 224
    """Side of the network's square input, in pixels."""
    flip: bool = True
    """Mirror training images at random. Turn off where left and right differ in meaning."""
    jitter: float = 1.0
    """Strength of colour jitter where a method uses it; 0 is none."""
    holdout: float = 0.1
    """Share of each class's source images kept out of training, to calibrate confidence on.
    Classes with fewer than 20 images keep all theirs; 0 keeps none out."""
    cache: CacheMode = "auto"
    """Where decoded pixels are kept: in memory, in a memory-mapped file, or nowhere (decoded anew
    for every batch); auto takes the first that fits."""
    memory_gb: float = 4.0
    """Most pixels kept in memory, in GiB."""
    cache_dir: str | None = None
    """Folder of decoded pixels and embeddings, for later runs too; by default unida under the
    user's cache folder. It may be deleted; what no run used for a month is removed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(8, "image_size")
        self._finite("jitter")
        self._finite("memory_gb", positive=True)
        require(0 <= self.holdout <= 0.5, "holdout", self.holdout, "from 0 to 0.5")

    @property
    def pixel_size(self) -> int:
        """Side of a cached image: crops of `image_size` are cut from it (224 from 256)."""
        return round(self.image_size * 8 / 7)


@dataclass(frozen=True)
class ModelConfig(_Checked):
    """The backbone and how it is trained."""

    backbone: str = "resnet50"
    """small_cnn, resnet18/34/50/101/152 (add -v1 for the 2015 stride layout), efficientnet_lite2,
    hf:DIRECTORY-OR-ID or timm:NAME."""
    weights: str | None = None
    """Backbone weights: a safetensors or torch file, or 'none' to start from scratch. By default
    the published ImageNet weights from the Hugging Face hub (small_cnn: none)."""
    frozen: bool = False
    """Keep the backbone fixed: embed every image once and train the heads on the embeddings. For
    machines without a GPU, and for backbones that are better left unchanged."""
    frozen_views: int = 0
    """With --frozen: augmented views embedded per image, besides the plain one."""
    batch_norm: BatchNorm = "auto"
    """Statistics of the backbone's batch norm in training: those of the batch, one domain at a
    time, or those stored with its weights, which then stay fixed; auto is stored wherever there
    are weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(0, "frozen_views")


@dataclass(frozen=True)
class OptimConfig(_Checked):
    """The optimiser, the batches and the seed."""

    steps: int = 2000
    """Optimiser steps."""
    batch: int = 36
    """Images per step and domain, over all processes."""
    lr: float = 0.01
    """Learning rate of the heads at the first step."""
    schedule: str = "inverse_decay"
    """Decay of the learning rate over the run: inverse_decay, cosine or constant. NAME:T decays
    over T steps whatever the length of the run."""
    backbone_lr: float | None = None
    """Learning rate of the backbone as a factor of lr; by default 0.03 with weights, 1 without."""
    momentum: float = 0.9
    """Nesterov momentum."""
    weight_decay: float = 5e-4
    """L2 penalty on all weights."""
    seed: int = 0
    """Seed of every random number."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "steps")
        self._at_least(2, "batch")
        self._finite("lr", positive=True)
        names = f"{', '.join(SCHEDULES)}, or with its steps, as in inverse_decay:10000"
        require(is_schedule(self.schedule), "schedule", self.schedule, names)
        self._finite("weight_decay", "backbone_lr")
        require(0 <= self.momentum < 1, "momentum", self.momentum, "from 0 up to, not including, 1")


@dataclass(frozen=True)
class ComputeConfig(_Checked):
    """The device and how a step runs on it."""

    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    precision: Precision = "auto"
    """Arithmetic of the backbone; auto is bf16 on a GPU that has it and fp32 elsewhere. Heads and
    losses are always in float32."""
    cpu_precision: CpuPrecision = "fp32"
    """Arithmetic of the backbone on a CPU when images are embedded, predicted or scored; bf16 is
    faster where the CPU has it, and rounds features to about 1 in 250."""
    cuda_graphs: Switch = "auto"
    """Record a step once as a CUDA graph and launch it as one; off launches kernel by kernel. auto
    is on wherever the method and the device allow it."""
    compile: bool = False
    """Compile the backbone before the step is recorded: takes a minute at the start and pays in
    long runs. Needs --cuda-graphs on or auto."""

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = not (self.compile and self.cuda_graphs == "off")
        require(ok, "cuda_graphs", self.cuda_graphs, "auto or on, with --compile")


@dataclass(frozen=True)
class DecisionConfig(_Checked):
    """From a method's outputs to labels."""

    refine: Refinement = "knn"
    """Refinement of the outputs on the target, after training: none, or k-NN smoothing of scores
    and probabilities."""
    reject: str = "share"
    """How 'unknown' is decided in predictions.csv: share, own, mixture, none, source[:SHARE] or
    threshold:VALUE; `unida methods` describes them. `unida predict --reject` may change it."""
    ensemble: int = 1
    """Models to train, each from its own seed, whose outputs are averaged: three are a little
    better than one, at three times the cost (of the heads alone, with --frozen)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(1 <= self.ensemble <= 100, "ensemble", self.ensemble, "from 1 to 100")


@dataclass(frozen=True)
class OutputConfig(_Checked):
    """What a run writes."""

    out: str = ""
    """Folder of the run; new or empty, or with --resume one that holds an unfinished run."""
    log_every: int = 50
    """Steps between two lines of metrics.jsonl."""
    checkpoint_every: int = 500
    """Steps between two checkpoints."""
    slim: bool = False
    """Leave the weights of a frozen backbone out of model.safetensors: it names their file and its
    sha256. Where the file was moved, commands that take --weights are told where it is."""
    half: bool = False
    """Store matrices and kernels of model.safetensors in half precision: half the size."""
    report: bool = True
    """Write report.html, the run as a page, at the end; `unida report` writes it later."""
    tracker: tuple[str, ...] = ()
    """Experiment trackers that get losses, speed, the final estimates and the report: tensorboard,
    wandb, mlflow, or several. They write into the run folder and need no account."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "log_every", "checkpoint_every")


@dataclass(frozen=True)
class RunConfig:
    """The configuration of a run.

    Attributes:
        method: key of `unida.methods.METHODS`.
        settings: frozen config dataclass of the method; None for its defaults.
        data, model, optim, compute, decision, output: options, by owner.
    """

    method: str = "san"
    settings: Any = None
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    optim: OptimConfig = OptimConfig()
    compute: ComputeConfig = ComputeConfig()
    decision: DecisionConfig = DecisionConfig()
    output: OutputConfig = OutputConfig()

    @classmethod
    def from_flat(cls, **options: Any) -> Self:
        """Make a config from flat options: `RunConfig.from_flat(steps=100, flip=False)`."""
        return cls().replace(**options)

    def replace(self, **options: Any) -> Self:
        """Return a copy with some options, named flat, set; text is parsed to the option's type."""
        changes: dict[str, Any] = {}
        for name, value in current_options(options).items():
            if name in ("method", "settings"):
                changes[name] = value
                continue
            require_known(name, OPTION_NAMES, "option")
            changes.setdefault(GROUP_OF[name], {})[name] = value
        for group, cls in GROUPS.items():
            if group in changes:
                typed = parse_fields(cls, changes[group], "option")
                changes[group] = dataclasses.replace(getattr(self, group), **typed)
        return dataclasses.replace(self, **changes)

    def flat(self) -> dict[str, Any]:
        """Return all options by flat name, and the method and its settings as a mapping."""
        settings = {} if self.settings is None else dataclasses.asdict(self.settings)
        groups = (dataclasses.asdict(getattr(self, group)) for group in GROUPS)
        options = {name: value for group in groups for name, value in group.items()}
        return {"method": self.method, "settings": settings, **options}


GROUPS: dict[str, type] = {
    "data": DataConfig,
    "model": ModelConfig,
    "optim": OptimConfig,
    "compute": ComputeConfig,
    "decision": DecisionConfig,
    "output": OutputConfig,
}
GROUP_OF = {f.name: group for group, cls in GROUPS.items() for f in dataclasses.fields(cls)}
OPTION_NAMES = ("method", "settings", *GROUP_OF)

RENAMED: dict[str, str | dict[str, dict[str, Any]]] = {
    "members": "ensemble",
    "launch": {
        "auto": {},
        "eager": {"cuda_graphs": "off"},
        "captured": {"cuda_graphs": "on"},
        "compiled": {"compile": True},
    },
    "at_once": "workers",  # of `unida bench`, as the next
    "in_a_row": "runs_per_worker",
    "way": "algorithm",  # of `unida discover`
}
"""Options of the last release and their names now, or what each value is now."""

RENAMED_VALUES = {"refine": {"auto": "knn", "prototypes,knn": "knn"}}
"""Values of options of the last release, and what they are now."""


def current_options(options: Mapping[str, Any], warn: bool = True) -> dict[str, Any]:
    """Return options by today's names; a renamed one is understood for one release.

    Args:
        options: by flat name.
        warn: whether to log a warning; a stored run is read without.
    """
    current: dict[str, Any] = {}
    for name, value in options.items():
        now: str | dict[str, Any] | None = RENAMED.get(name)
        if value in tuple(RENAMED_VALUES.get(name, {})):  # it may be a list
            now = {value: {name: RENAMED_VALUES[name][value]}}
        if now is None:
            new = {name: value}
        elif isinstance(now, str):
            new = {now: value}
        else:
            require(value in now, name, value, ", ".join(now))
            new = now[value]
        if now is not None and warn:
            text = " ".join(f"{key}={v}" for key, v in new.items()) or "nothing"
            logger.warning("Option %s=%s is deprecated: use %s.", name, value, text)
        current |= new
    return current


def to_json(config: RunConfig) -> dict[str, Any]:
    """Return the nested mapping that config.json holds."""
    settings = config.flat()["settings"]
    groups = {group: dataclasses.asdict(getattr(config, group)) for group in GROUPS}
    return {"method": config.method, "settings": settings, **groups}


def to_arguments(config: RunConfig) -> list[str]:
    """Return the arguments of the `unida adapt` that makes this run: all but the defaults."""
    words = []
    default = RunConfig().flat()
    for name, value in config.flat().items():
        flag = "--" + name.replace("_", "-")
        if name == "settings":
            usual = dataclasses.asdict(type(config.settings)()) if value else {}
            pairs = [f"{k}={v}" for k, v in value.items() if v != usual[k]]
            words += ["--set", *pairs] if pairs else []
        elif value == default[name]:
            continue
        elif isinstance(value, tuple):
            words += [flag, *map(str, value)]
        elif isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        else:
            words += [flag, str(value)]
    return words


def from_mapping(cls: type[C], values: Mapping[str, Any], where: str) -> C:
    """Make a dataclass from plain values; text is parsed to the field's type.

    Args:
        cls: a dataclass.
        values: field name to value; a name that is no field is an error.
        where: what the values belong to, for the error.
    """
    return cls(**parse_fields(cls, values, f"setting of {where}"))


def parse_settings(cls: type[C], pairs: Iterable[str], where: str) -> C:
    """Make a dataclass from `key=value` texts."""
    return from_mapping(cls, split_pairs(pairs, f"setting of {where}"), where)


def parse_fields(cls: type, values: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the values in the types of a dataclass's fields."""
    hints = typing.get_type_hints(cls)
    fields = [field.name for field in dataclasses.fields(cls)]
    for name in values:
        require_known(name, fields, what)
    return {name: _typed(name, value, hints[name]) for name, value in values.items()}


def split_pairs(pairs: Iterable[str], what: str) -> dict[str, str]:
    """Return key to value of `key=value` texts; each key may come once."""
    values: dict[str, str] = {}
    for text in pairs:
        key, sign, value = text.partition("=")
        require(sign == "=", what, text, "KEY=VALUE")
        require(key.strip() not in values, what, text, "each key once")
        values[key.strip()] = value.strip()
    return values


def _typed(name: str, value: Any, hint: Any) -> Any:
    """Return `value` as the type `hint`: Literal, optional, tuple or a plain scalar type."""
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
