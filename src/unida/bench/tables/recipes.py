"""Whether the rows of a table ran what the authors of their methods published for the data set."""

import dataclasses
from typing import Any

from unida.bench.results import OFF, Result
from unida.bench.tables.groups import SEARCHED, Line
from unida.errors import shorten
from unida.methods import METHODS
from unida.methods.presets import PRESETS, preset_on
from unida.protocols.sets import set_names
from unida.protocols.tasks import load_protocol

DECISION = ("refine", "reject")
"""Options of a recipe that say which row and rule is the published one, not how it was trained."""


def published_settings(lines: list[Line]) -> list[str]:
    """Return a note on which rows ran published settings, and which others; none without any.

    The rows are of one data set. What was published is in its protocol, under [methods].
    """
    first = next((run for line in lines for run in line.all_runs()), None)
    if first is None or first.data not in set_names():
        return []
    protocol = load_protocol(first.data)
    if not protocol.methods:
        return []
    found: dict[str, list[str]] = {"as published": [], "otherwise": [], "none known": []}
    for line in {(line.entry, line.variant): line for line in lines}.values():
        name = line.entry.partition(":")[0]
        if name not in protocol.methods or name not in (*METHODS, *PRESETS):
            found["none known"].append(line.entry)
            continue
        preset = preset_on(name, protocol)
        run = line.all_runs()[0]
        other = _differences(run, preset.settings, preset.options)
        usual = dataclasses.asdict(METHODS[preset.method].Config())
        own = {k: v for k, v in preset.settings.items() if usual[k] != v}
        kind = "otherwise" if other else "as published"
        found[kind].append(_with_details(line.entry, other or [f"{k}={own[k]}" for k in own]))
    if not (found["as published"] or found["otherwise"]):
        return []
    parts = [f"{kind}: {', '.join(dict.fromkeys(names))}" for kind, names in found.items() if names]
    return [f"Settings that the authors published for {protocol.title}: {'; '.join(parts)}."]


def searched_settings(lines: list[Line]) -> list[str]:
    """Return a note on rows whose settings were searched; none without any."""
    if not any(SEARCHED in line.entry for line in lines):
        return []
    return [
        f"{SEARCHED}: settings were chosen for each task by `unida tune` (under 'Made with'); "
        "'oracle' by target labels, for reference only, 'label-free' by a criterion without them."
    ]


def _differences(run: Result, settings: Any, options: Any) -> list[str]:
    """Return what a run did otherwise, as `q=3, published 6`."""
    texts = []
    in_force: dict[str, Any] = {**OFF, **run.options}
    for values, published in ((run.settings, settings), (in_force, options)):
        for name, value in published.items():
            ran = values.get(name, "not recorded")
            unused = ran is None and run.options.get("frozen")  # of a backbone that is not trained
            if name not in DECISION and ran != value and not unused:
                texts.append(f"{name}={ran}, published {value}")
    if options and run.options.get("frozen"):
        texts.append("backbone frozen")
    return texts


def _with_details(name: str, details: list[str]) -> str:
    return f"{name} ({shorten(details, 12)})" if details else name
