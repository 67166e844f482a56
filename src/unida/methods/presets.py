"""Names for method settings and run options, the same in `adapt`, `bench` and Python.

What the authors of a method ran on a data set is in its protocol, under [methods.NAME]. A bench of
that protocol uses it; elsewhere `NAME@SET` does, as in `--method san-released@office-home`.

`configure` makes a run's configuration from flat options; `load_config` reads a stored one.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unida.config import (
    FORMAT,
    GROUPS,
    Refinement,
    RunConfig,
    current_options,
    from_mapping,
    split_pairs,
)
from unida.errors import UserError, require, require_known
from unida.methods import METHODS
from unida.protocols.schema import Protocol, Recipe
from unida.protocols.tasks import load_protocol
from unida.utils.files import read_file
from unida.utils.logs import logger


@dataclass(frozen=True)
class Preset:
    """A method with settings and run options.

    Attributes:
        method: key of `METHODS`.
        about: what it is, in a few words.
        settings: of the method, where they are not its defaults.
        options: of the run, by flat name, where they are not the usual ones.
    """

    method: str
    about: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


AS_PUBLISHED = {
    "batch_norm": "batch",
    "backbone_lr": 0.1,
    "holdout": 0.0,
    "refine": "none",
    "reject": "own",
}
"""Options of a run in which papers and released code agree, and our defaults differ."""

PRESETS: dict[str, Preset] = {
    "san-paper": Preset(
        "san",
        "SAN as printed; no weights are, so λ and β are 1, α is ½",
        {
            **{"lam": 1.0, "beta": 1.0, "alpha": 0.5},
            **{"contrast": "paper", "third": "log", "third_weight": 1.0, "entropy": 0.0},
            **{"head": "linear", "width": 0, "hidden": 1.0, "projection_lr": 1.0},
            "score": "largest",
        },
        AS_PUBLISHED,
    ),
    "san-released": Preset(
        "san",
        "SAN as its released script, here with that script's defaults",
        {
            **{"lam": 0.1, "beta": 1.0, "contrast": "released", "sigma_y": 10.0, "near_rate": 1e4},
            **{"third": "sigmoid", "third_weight": 1.5, "entropy": 0.1, "crop": 0.8},
            **{"head": "hashed", "width": 0, "hidden": 2.0, "projection_lr": 0.01},
            **{"projection_momentum": False, "projection_decay": 2e-4, "score": "largest"},
        },
        AS_PUBLISHED,
    ),
    # Our λ of 3 was chosen for AIO and SCL together: a row without either has the equation's 1.
    "san-no-aio": Preset(
        "san",
        "ablation: OVANet's heads and losses on the same network",
        {"classifier": "closed_and_open", "entropy": 0.1, "lam": 1.0},
    ),
    "san-no-scl": Preset("san", "ablation: no contrastive loss", {"contrast": "none"}),
    "san-no-aio-no-scl": Preset(
        "san",
        "ablation: OVANet's heads on the same network, no contrastive loss",
        {"classifier": "closed_and_open", "entropy": 0.1, "contrast": "none"},
    ),
    "san-info-nce": Preset(
        "san", "ablation: InfoNCE for SCL", {"contrast": "info_nce", "lam": 1.0}
    ),
    "spa-ovanet": Preset("spa", "SPA on OVANet", {"base": "ovanet"}),
    "cmu-released": Preset(
        "cmu",
        "CMU as its released folder `new`",
        {"released_pretraining": True},
        AS_PUBLISHED | {"batch": 32, "lr": 0.01, "weight_decay": 1e-3},
    ),
    "dance-released": Preset(
        "dance", "DANCE as its released code", {"target_view": "centre"}, AS_PUBLISHED
    ),
    "dcc-released": Preset(
        "dcc",
        "DCC as its released code",
        {"blocks": "cycled"},
        AS_PUBLISHED | {"schedule": "inverse_decay:10000"},
    ),
    "glc-released": Preset(
        "glc",
        "GLC as its released code",
        options=AS_PUBLISHED | {"batch": 64, "weight_decay": 1e-3},
    ),
    "lead-released": Preset(
        "lead",
        "LEAD as its released code",
        {"released_weights": True},
        AS_PUBLISHED | {"batch": 64, "weight_decay": 1e-3},
    ),
    "mlnet-released": Preset("mlnet", "MLNet as its released code", options=AS_PUBLISHED),
    "ovanet-released": Preset("ovanet", "OVANet as its released code", options=AS_PUBLISHED),
    "uan-released": Preset(
        "uan",
        "UAN as its released code",
        {"double_softmax": True},
        AS_PUBLISHED | {"schedule": "inverse_decay:10000"},
    ),
    "uniot-released": Preset(
        "uniot", "UniOT as its released code", {"normalise_twice": True}, AS_PUBLISHED
    ),
}

_REFINEMENT = ("neighbours", "anchors", "nearest_by")
"""Settings of the last release that are now the option `refine`."""


def find_preset(name: str) -> Preset:
    """Return a preset; the name of a method is one without settings or options.

    `NAME@SET` is the preset on a data set: `preset_on` with the protocol SET.
    """
    name, _, data = name.partition("@")
    require_known(name, [*METHODS, *PRESETS], "method")
    if not data:
        return PRESETS.get(name) or Preset(name)
    protocol = load_protocol(data)
    require(name in protocol.methods, f"a method of {data}", name, ", ".join(protocol.methods))
    return preset_on(name, protocol)


def preset_on(name: str, protocol: Protocol) -> Preset:
    """Return a preset with what its authors ran on a data set, where the protocol has it.

    The settings that the protocol has for the method come first, then the preset's own.
    """
    for one in protocol.methods:
        require_known(one, [*METHODS, *PRESETS], f"[methods] of {protocol.name}:")
    preset, none = find_preset(name), Recipe({}, {})
    of_method, own = (protocol.methods.get(key, none) for key in (preset.method, name))
    return dataclasses.replace(
        preset,
        settings={**of_method.settings, **preset.settings, **own.settings},
        options={**preset.options, **own.options},
    )


def configure(
    method: str | Preset = "san",
    settings: Mapping[str, Any] | Iterable[str] | None = None,
    **options: Any,
) -> RunConfig:
    """Make the configuration of a run.

    Args:
        method: a method or a preset, mostly by name; what is given beside it wins.
        settings: of the method, by name or as `key=value` texts.
        **options: of the run, by flat name, as in `steps=100`.
    """
    preset = find_preset(method) if isinstance(method, str) else method
    given = settings if isinstance(settings, Mapping) else split_pairs(settings or (), "setting")
    given, refine = _without_refinement(preset.method, given)
    if refine:
        logger.warning(
            "Settings neighbours, anchors and nearest_by are deprecated: use refine=%s. The number "
            "of neighbours is 6.",
            refine,
        )
        options.setdefault("refine", refine)
    typed = make_settings(preset.method, {**preset.settings, **given})
    options = {**preset.options, **current_options(options)}
    return RunConfig.from_flat(method=preset.method, settings=typed, **options)


def make_settings(method: str, values: Mapping[str, Any]) -> Any:
    """Make the config dataclass of a method; text is parsed to the field's type."""
    return from_mapping(METHODS[method].Config, values, method)


def load_config(path: Path) -> RunConfig:
    """Read the config.json of a run, of this format or the one before."""
    try:
        content = dict(json.loads(read_file(path)))
        run, number = dict(content["run"]), content.get("format", 1)
        if number == 1:
            run = _from_format_1(run, dict(content.get("method", {})))
        elif number == FORMAT:
            run |= {name: value for group in GROUPS for name, value in run.pop(group).items()}
            run = current_options(run, warn=False)
        require(number in (1, FORMAT), f"format of {path}", number, f"1 to {FORMAT}")
        try:
            return configure(**run)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
    except UserError:
        raise
    except Exception as error:  # of any type: the content may be anything
        raise UserError(f"{path} is not the config.json of a run ({f'{error!r}'[:200]}).") from None


def _from_format_1(run: dict[str, Any], resolved: dict[str, Any]) -> dict[str, Any]:
    """Return flat options of today from those of a format 1 run and its resolved settings."""
    settings = split_pairs(run.pop("settings", ()), "setting")
    settings |= {name: resolved[name] for name in _REFINEMENT if name in resolved}
    settings, refine = _without_refinement(run["method"], settings)
    if settings.get("reads") == "z":  # a setting that was removed
        del settings["reads"]
    # A run from before `holdout` or refinement had neither.
    options = {"holdout": 0.0, "refine": refine or "none"} | current_options(run, warn=False)
    return options | {"settings": settings}


def _without_refinement(
    method: str, settings: Mapping[str, Any]
) -> tuple[dict[str, Any], Refinement | None]:
    """Split off settings of the last release that are now the option `refine`, and its value."""
    fields = [f.name for f in dataclasses.fields(METHODS[method].Config)]
    if method not in ("san", "ovanet"):
        return dict(settings), None
    old = {k: str(v).lower() for k, v in settings.items() if k in _REFINEMENT and k not in fields}
    rest = {k: v for k, v in settings.items() if k not in old}
    if not old:
        return rest, None
    return rest, "none" if old.get("neighbours") == "0" else "knn"
