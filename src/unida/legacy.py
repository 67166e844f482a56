"""Formats of earlier releases, read as today's.

A format is changed together with its migration here: a model of format n becomes one of n + 1.
"""

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from unida.errors import UserError

OLDEST = 6

Tensors = dict[str, Tensor]

_REFINER_NAMES = {
    "rows": "bank",
    "said": "values",
    "centre": "centre",
    "unit": "scale",
    "directions": "directions",
    "there": "present",
    "shift": "shift",
}
_REFINEMENT_SETTINGS = ("neighbours", "anchors", "nearest_by")
_USUAL_K = {"san": 6}


def migrate_model(
    description: Mapping[str, Any], tensors: Tensors, newest: int, where: str
) -> tuple[dict[str, Any], Tensors]:
    """Bring the description and tensors of a stored model to the newest format."""
    found = description.get("format")
    if not isinstance(found, int) or not OLDEST <= found <= newest:
        allowed = f"{OLDEST} to {newest}; use the release of unida that wrote it, or train it again"
        raise UserError(f"format of {where} is {found!r}; allowed: {allowed}.")
    d = dict(description)
    if found == 6:
        d, tensors = _from_format_6(d, tensors)
    if d["format"] == 7:
        d = _from_format_7(d)
    return (_from_format_8(d) if d["format"] == 8 else d), tensors


def migrate_checkpoint(tensors: Tensors) -> Tensors:
    """Drop the refinement's tensors from the training state of a method, as of format 6."""
    return {k: v for k, v in tensors.items() if not re.match(r"(base\.)?neighbours\.", k)}


def _from_format_6(d: dict[str, Any], tensors: Tensors) -> tuple[dict[str, Any], Tensors]:
    """Move the refinement, which was part of SAN and OVANet, to a stage of its own."""
    n_members = d.pop("members", 1)
    settings, k = _without_refinement(d["method"], dict(d["settings"]), d["sizes"]["n_target"])
    moved = {_new_name(name, n_members > 1): tensor for name, tensor in tensors.items()}
    starts = [f"members.{i}." for i in range(n_members)] if n_members > 1 else [""]
    d |= {
        "format": 7,
        "settings": settings,
        "refiners": [_refiner_config(moved, f"{start}refiner.", k, d) for start in starts],
        "shares_backbone": d.pop("one_network", False),
    }
    return d, moved


def _from_format_7(d: dict[str, Any]) -> dict[str, Any]:
    """Add what the rule of a model was fitted to, which earlier models did not keep."""
    return d | {"format": 8, "reference": None, "target": []}


def _from_format_8(d: dict[str, Any]) -> dict[str, Any]:
    """Note that the weights of the backbone are in the file, as they always were."""
    return d | {"format": 9, "weights": None}


def _without_refinement(
    method: str, settings: dict[str, Any], n_target: int
) -> tuple[dict[str, Any], int]:
    """Split off the method's own settings, and the number of neighbours."""
    if settings.pop("reads", "z") != "z":
        raise UserError("The model's classifier reads y, which is no longer offered: train again.")
    k = settings.get("neighbours")
    if method == "spa":  # the settings of the base method are text
        given = dict(pair.split("=") for pair in settings["base_set"].split(",") if pair)
        k = int(given.pop("neighbours", 0))
        given = {name: v for name, v in given.items() if name not in _REFINEMENT_SETTINGS}
        settings["base_set"] = ",".join(f"{name}={v}" for name, v in given.items())
    own = {name: v for name, v in settings.items() if name not in _REFINEMENT_SETTINGS}
    return own, min(_USUAL_K.get(method, 0), n_target - 1) if k is None else int(k)


def _new_name(name: str, is_ensemble: bool) -> str:
    """Return the name of a tensor of format 6 today."""
    start, rest = "", name
    if is_ensemble and (member := re.match(r"members\.\d+\.", name)):
        start, rest = member[0], name[member.end() :]
    place = re.fullmatch(r"(?:base\.)?neighbours\.(circles\.(\d+)|anchors)\.(\w+)", rest)
    if place is None:
        return f"{start}method.{rest}" if start else name
    part = f"rounds.{place[2]}" if place[2] else "prototypes"
    return f"{start}refiner.{part}.{_REFINER_NAMES[place[3]]}"


def _refiner_config(
    tensors: Tensors, start: str, k: int, d: dict[str, Any]
) -> dict[str, Any] | None:
    """Infer the arguments of `unida.decision.refinement.Refiner` from the tensors."""
    banks = [t for i in range(2) if (t := tensors.get(f"{start}rounds.{i}.bank")) is not None]
    if not banks:
        return None
    return {
        "n_images": len(banks[0]),
        "widths": [bank.shape[1] for bank in banks],
        "n_classes": len(d["classes"]),
        "k": k,
        "prototypes": f"{start}prototypes.shift" in tensors,
    }
