"""A shared model as a folder: model.safetensors, JSON and README.md; no code and no pickle."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from unida import __version__
from unida.config import ENVIRONMENT, GROUPS, RunConfig, to_json
from unida.decision.rejection import Rule
from unida.errors import UserError
from unida.methods.presets import load_config
from unida.models.description import refusing_damage
from unida.sharing.card import CardFacts, build_card, check_license
from unida.training.run_folder import RunFolder, write_text
from unida.utils.files import read_file
from unida.utils.json_text import finite

CARD = "README.md"
FILES = ("model.safetensors", "config.json", "diagnostics.json", "calibration.json", CARD)
"""All that a shared model consists of; of a downloaded one nothing else is fetched."""


def write_shared(
    folder: Path,
    save: Callable[[Path, dict[str, Any]], None],
    description: Mapping[str, Any],
    rule: Rule,
    origin: Path | None,
    place: str,
    license: str | None,
    force: bool,
) -> Path:
    """Write a model, what is known of its run, and its card.

    Args:
        folder: new or empty, or with `force` one that holds a shared model.
        save: writes model.safetensors with a description.
        description: of the model.
        rule: the reject rule in force.
        origin: run folder or shared folder that the model came from, if there is one.
        place: what `unida.load` will take, for the card.
        license: identifier of the hub.
        force: whether files that are there are written over.
    """
    check_license(license)
    _require_free(folder, force)
    run = RunFolder(origin) if origin else None
    config = read_config(run) if run else None
    diagnostics = _read_object(run.stored_diagnostics) if run else {}
    calibration = _read_object(run.calibration) if run else {}
    options = dict(config.flat()) if config else {}
    facts = (description, rule, place, options, diagnostics, calibration, license)
    with refusing_damage(str(origin)):  # its JSON may be anyone's
        card = build_card(CardFacts(*facts))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be made: {error.strerror}.") from None
    shared = RunFolder(folder)
    save(shared.model, {**description, "backbone": public_backbone(description["backbone"])})
    if config:
        write_text(shared.config, json.dumps(public_config(config), indent=2) + "\n")
    for file, content in ((shared.diagnostics, diagnostics), (shared.calibration, calibration)):
        if content:
            write_text(file, json.dumps(finite(content), indent=2) + "\n")
    write_text(folder / CARD, card)
    return folder


def public_config(config: RunConfig) -> dict[str, Any]:
    """Return the content of config.json without what tells of this machine: paths and devices."""
    run = to_json(config)
    for group in GROUPS:
        run[group] = {k: v for k, v in run[group].items() if k not in ENVIRONMENT | {"weights"}}
    run["model"]["backbone"] = _last_part(config.model.backbone)
    return {"library_name": "unida", "unida": __version__, "format": 2, "run": run}


def public_backbone(spec: str) -> str:
    """Return the spec of a backbone without the folder that it was read from."""
    values = json.loads(spec)
    values["name"] = _last_part(values["name"])
    config = values.get("config")
    if isinstance(config, dict) and "_name_or_path" in config:
        config["_name_or_path"] = _last_part(str(config["_name_or_path"]))
    return json.dumps(values)


def _last_part(place: str) -> str:
    """Return the last part of the path of a folder here, behind `hf:` or alone; or what it is."""
    kind, colon, path = place.rpartition(":")
    here = os.path.isabs(path) or os.path.exists(path)
    return f"{kind}{colon}{Path(path).name}" if here else place


def read_config(run: RunFolder) -> RunConfig | None:
    """Read the options of a run as they were in force, if they are there."""
    return load_config(run.config) if run.config.exists() else None


def _require_free(folder: Path, force: bool) -> None:
    if (folder / "done").exists():
        raise UserError(f"{folder} is a run: name another folder for the shared model.")
    try:
        found = {path.name for path in folder.iterdir()}
    except FileNotFoundError:
        return
    except OSError as error:
        raise UserError(f"{folder} cannot be used: {error.strerror}.") from None
    if found and not (force and RunFolder(folder).model.exists()):
        advice = ", or write over its model with --force" if not force else ""
        raise UserError(f"{folder} is not empty: name another folder{advice}.")


def _read_object(file: Path) -> dict[str, Any]:
    """Read a JSON object that may be missing, damaged or of a stranger."""
    try:
        content = json.loads(read_file(file))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
