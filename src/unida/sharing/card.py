"""The model card: what a model was made from, how it decides, and what its estimates are worth.

Names of classes and most other texts come from files that may be anyone's. In the card they are
text, never markup: every character that is no letter, digit or space is a character reference.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from unida import __version__
from unida.decision.rejection import Rule
from unida.errors import require
from unida.methods import METHODS
from unida.utils.logs import printable

TAGS = ("image-classification", "domain-adaptation", "universal-domain-adaptation", "open-set")
MAX_CLASSES = 200
MAX_NAME = 80
_LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]{0,39}")
_SHOWN = ("backbone", "frozen", "steps", "batch", "lr", "seed", "image_size", "refine", "ensemble")
"""Options of the run in the card, in order."""


@dataclass(frozen=True)
class CardFacts:
    """What the card says.

    Attributes:
        description: of the model, as its file has it.
        rule: the reject rule in force.
        place: what `unida.load` takes.
        options: of the run, flat; empty where they are not known.
        diagnostics: content of diagnostics.json, likewise.
        calibration: content of calibration.json, likewise.
        license: identifier of the hub, such as `mit`; None where none is given.
    """

    description: Mapping[str, Any]
    rule: Rule
    place: str
    options: Mapping[str, Any] = field(default_factory=dict)
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    calibration: Mapping[str, Any] = field(default_factory=dict)
    license: str | None = None


def check_license(license: str | None) -> None:
    """Refuse a licence that is no identifier, which would break the head of the card."""
    ok = license is None or _LICENSE.fullmatch(license)
    require(bool(ok), "license", license, "an identifier of the hub, such as mit or cc-by-4.0")


def build_card(facts: CardFacts) -> str:
    """Return the card as Markdown with a YAML head."""
    check_license(facts.license)
    parts = (
        _head(facts),
        _introduction(facts),
        _use(facts),
        _data(facts),
        _training(facts),
        _decision(facts),
        _estimates(facts),
        _limits(facts),
        _citation(facts),
    )
    return "\n\n".join(parts) + "\n"


def as_text(value: object, most: int = MAX_NAME) -> str:
    """Return Markdown that shows a value as it is, on one line."""
    text = " ".join(printable(str(value)).split())
    text = text if len(text) <= most else text[: most - 1] + "…"
    return "".join(c if c.isalnum() or c == " " else f"&#{ord(c)};" for c in text)


def _head(facts: CardFacts) -> str:
    lines = ["library_name: unida", "pipeline_tag: image-classification", "tags:"]
    lines += [f"- {tag}" for tag in TAGS]
    if facts.license:
        lines.append(f'license: "{facts.license}"')
    return "\n".join(("---", *lines, "---"))


def _introduction(facts: CardFacts) -> str:
    n = len(facts.description["classes"])
    return (
        "# Image classifier that can answer 'unknown'\n\n"
        f"It gives an image one of {n} classes, or the label *unknown*. It was adapted from "
        "labelled source images to unlabelled target images by universal domain adaptation with "
        f"unida {__version__}. This card was generated; nobody has checked what the model is good "
        "for."
    )


def _use(facts: CardFacts) -> str:
    code = f"import unida\n\nmodel = unida.load({facts.place!r})"
    code += '\nfor p in model.predict("folder-of-images"):'
    code += "\n    print(p.path, p.label, p.confidence, p.unknown_score)"
    return f"## Use\n\n```python\n{code}\n```"


def _data(facts: CardFacts) -> str:
    d = facts.description
    sizes, names = d["sizes"], d["classes"]
    shown = ", ".join(map(as_text, names[:MAX_CLASSES]))
    more = f" and {len(names) - MAX_CLASSES} more" if len(names) > MAX_CLASSES else ""
    rows = [("source images, labelled", sizes.get("n_source"))]
    rows += [("target images, without labels", sizes.get("n_target")), ("classes", len(names))]
    return f"## Data\n\n{_table(('', 'number'), rows)}\n\nThe classes: {shown}{more}."


def _training(facts: CardFacts) -> str:
    method = facts.description["method"]
    about = METHODS[method].about
    rows = [("method", method), ("paper", f"{about.paper}, {about.venue}")]
    rows += [(name, facts.options[name]) for name in _SHOWN if name in facts.options]
    rows += [(f"{method}: {name}", value) for name, value in facts.description["settings"].items()]
    return f"## Training\n\n{_table(('setting', 'value'), rows)}"


def _decision(facts: CardFacts) -> str:
    rule, others = facts.rule, sorted(facts.description["rules"].keys() - {facts.rule.name})
    lines = [
        "## Decision",
        f"An image is unknown if its unknown score is {as_text(f'{rule.threshold:.6g}')} or more. "
        f"The reject rule is {as_text(rule.name)}: {as_text(rule.note, 300)}.",
    ]
    if rule.fell_back:
        lines.append("The rule that was asked for could not be fitted to the target.")
    if others:
        lines.append(
            f"Other rules are in the file ({', '.join(map(as_text, others))}): "
            "`model.predict(images, reject=NAME)`."
        )
    return "\n\n".join(lines)


def _estimates(facts: CardFacts) -> str:
    lines = ["## Estimates", "No label of the target was used, so none of this is an accuracy."]
    about = facts.diagnostics.get("about", {})
    values = facts.diagnostics.get("estimates", {})
    rows = [(n, _number(v), about.get(n, "")) for n, v in values.items() if v is not None]
    if rows:
        lines.append(_table(("estimate", "value", "what it is"), rows))
    share = facts.description["rules"].get("share", {})
    if share.get("share") is not None and share.get("interval"):
        low, high = share["interval"]
        lines.append(
            f"Unknown images in the target, estimated without labels: {share['share']:.0%}, "
            f"between {low:.0%} and {high:.0%}. The interval is a rule of thumb, not a confidence "
            "interval; one or two unknown classes among many look like none."
        )
    note = facts.calibration.get("note", "the images of the calibration are not known")
    lines.append(
        f"Confidence is calibrated on source images, if at all ({as_text(note, 300)}). On images "
        "that look different it is too high."
    )
    warnings = [w.get("what", "") for w in facts.diagnostics.get("warnings", ())]
    if warnings:
        found = "\n".join(f"- {as_text(what, 300)}" for what in warnings)
        lines.append(f"Warnings of the run:\n\n{found}")
    return "\n\n".join(lines)


def _limits(facts: CardFacts) -> str:
    d = facts.description
    items = [
        "Unknown classes that resemble a known one are taken for it.",
        "The reject rule was fitted to one target. Images with another share of unknown ones need "
        "`model.refit_rules`.",
        "It classifies whole images: no detection, no segmentation.",
    ]
    if METHODS[d["method"]].about.transductive:
        items.append("The label of an image depends on the images predicted with it.")
    if any(d["refiners"]):
        items.append(
            "The weights file holds features and scores of target images (not the images), which "
            "predictions are smoothed with. Share it only if you may share those."
        )
    items.append("The file runs no code when it is loaded; its labels may still be wrong.")
    if not facts.license:
        items.append("No licence was given: ask the owner before you use it.")
    return "## Limits\n\n" + "\n".join(f"- {item}" for item in items)


def _citation(facts: CardFacts) -> str:
    about = METHODS[facts.description["method"]].about
    return (
        f"## Citation\n\nThe method: {as_text(about.paper, 300)}, {as_text(about.venue)}. "
        f"The software: the unida authors, unida {__version__}."
    )


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    lines += ["| " + " | ".join(as_text(cell, 300) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _number(value: object) -> object:
    return f"{value:.3g}" if isinstance(value, float) and math.isfinite(value) else value
