"""Protocols by name, and the source and target lists of their tasks."""

import csv
import functools
import io
import os
import secrets
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from unida.errors import UserError, require, shorten
from unida.protocols.label_noise import flip_labels
from unida.protocols.names import Spellings
from unida.protocols.schema import Images, Protocol, Split, parse_protocol
from unida.protocols.sets import read_set, set_names
from unida.protocols.trees import find_images
from unida.utils.csv_files import to_cell
from unida.utils.files import read_file

__all__ = [
    "Images",
    "Protocol",
    "Split",
    "TaskFiles",
    "load_protocol",
    "parse_tasks",
    "split_of",
    "write_task",
]

Row = tuple[Path, str]


@dataclass(frozen=True)
class TaskFiles:
    """The lists of a task.

    Attributes:
        source: CSV of the source images, with columns path and label; where labels were changed
            also true_label.
        target: CSV of the target images, with columns path and label.
        known_classes: names of the source's classes, in the order a run numbers them.
        shared_classes: those of them the target has too, in the same order.
        unknown_classes: how many further classes the target has.
        source_images: how many.
        target_images: how many, the unknown ones included.
        unknown_images: how many of the target's are of an unknown class.
        changed_labels: source labels changed by label noise.
    """

    source: Path
    target: Path
    known_classes: tuple[str, ...]
    shared_classes: tuple[str, ...]
    unknown_classes: int
    source_images: int
    target_images: int
    unknown_images: int
    changed_labels: int


def load_protocol(name_or_path: str) -> Protocol:
    """Load a built-in protocol by its name, or another by the path of its .toml file."""
    if Path(name_or_path).suffix == ".toml":
        return _load_file(Path(name_or_path))
    names = set_names()
    name = Spellings(dict.fromkeys(names, ())).find(name_or_path)
    allowed = ", ".join(names) + " or the path of a .toml file"
    require(name is not None, "the protocol", name_or_path, allowed)
    return _built_in(name or "")


@functools.cache
def _built_in(name: str) -> Protocol:
    return parse_protocol(read_set(name), f"{name}.toml", Path())


def _load_file(path: Path) -> Protocol:
    try:
        content = tomllib.loads(read_file(path).decode("utf-8-sig"))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not a text file in UTF-8.") from None
    except (ValueError, RecursionError) as error:  # of whole numbers and of nesting too
        raise UserError(f"{path} is not TOML: {error}.") from None
    return parse_protocol(content, str(path), path.parent)


def parse_tasks(protocol: Protocol, text: str) -> list[tuple[str, str]]:
    """The tasks that a text such as `Art-Clipart,Product-Real World` names, each once.

    `all` names them all. Domains may be spelt loosely, by another name of their folder, or begun
    (`A-C`) where that can mean one only.
    """
    if text.strip() == "all":
        return list(protocol.tasks)
    return list(dict.fromkeys(_task(protocol, part.strip()) for part in text.split(",")))


def _task(protocol: Protocol, text: str) -> tuple[str, str]:
    names = protocol.domain_names
    cuts = [i for i, sign in enumerate(text) if sign in "-→"]  # a domain's name may have one too
    pairs = {(names.complete(text[:i]), names.complete(text[i + 1 :])) for i in cuts}
    tasks = [task for task in protocol.tasks if task in pairs]
    allowed = shorten([f"{s}-{t}" for s, t in protocol.tasks], 12)
    require(len(tasks) == 1, f"a task of {protocol.name}", text, f"all, {allowed}")
    return tasks[0]


def split_of(protocol: Protocol, setting: str, unknown_classes: int | None = None) -> Split:
    """Return the split of a setting, or one with only the first few target-private classes."""
    known = ", ".join(protocol.splits)
    require(setting in protocol.splits, f"a setting of {protocol.name}", setting, known)
    split = protocol.splits[setting]
    if unknown_classes is None:
        return split
    most = len(split.target_private)
    fits = 0 <= unknown_classes <= most
    require(fits, f"unknown classes of {protocol.name}", unknown_classes, f"0 to {most}")
    return replace(split, target_private=split.target_private[:unknown_classes])


def write_task(
    protocol: Protocol,
    setting: str,
    source: str,
    target: str,
    root: Path,
    folder: Path,
    *,
    unknown_classes: int | None = None,
    label_noise: float = 0.0,
    noise_seed: int = 0,
) -> TaskFiles:
    """Write `source.csv` and `target.csv` of a task, each complete or not at all.

    Args:
        protocol: of the data set.
        setting: one of the protocol's, such as unda.
        source: source domain.
        target: target domain.
        root: folder of the data set.
        folder: where to write; it is made.
        unknown_classes: keep only the first so many target-private classes, in the protocol's
            order; by default all.
        label_noise: share of source labels to change, see `flip_labels`.
        noise_seed: of the changed labels.
    """
    for domain in (source, target):
        ok, known = domain in protocol.domains, ", ".join(protocol.domains)
        require(ok, f"a domain of {protocol.name}", domain, known)
    split = split_of(protocol, setting, unknown_classes)
    root = Path(os.path.abspath(root))  # the lists hold wherever they are read from
    source_rows = _rows(protocol, setting, source, root, split.source)
    target_rows = _rows(protocol, setting, target, root, split.target)
    true = [label for _, label in source_rows]
    given = _with_noise(true, label_noise, noise_seed)
    files = TaskFiles(
        source=folder / "source.csv",
        target=folder / "target.csv",
        known_classes=tuple(sorted(split.source)),
        shared_classes=tuple(sorted(split.shared)),
        unknown_classes=len(split.target_private),
        source_images=len(source_rows),
        target_images=len(target_rows),
        unknown_images=sum(label in split.target_private for _, label in target_rows),
        changed_labels=sum(a != b for a, b in zip(true, given, strict=True)),
    )
    paths = [str(path) for path, _ in source_rows]
    if label_noise:
        triples = zip(paths, given, true, strict=True)
        _write_csv(files.source, ("path", "label", "true_label"), triples)
    else:
        _write_csv(files.source, ("path", "label"), zip(paths, given, strict=True))
    _write_csv(files.target, ("path", "label"), ((str(path), label) for path, label in target_rows))
    return files


def _rows(
    protocol: Protocol, setting: str, domain: str, root: Path, classes: tuple[str, ...]
) -> list[Row]:
    images = find_images(protocol, domain, root).images
    missing = [name for name in classes if name not in images]
    if missing:
        raise UserError(
            f"{domain} below {root} has no image of {len(missing)} of the {len(classes)} classes "
            f"it needs in {setting} ({shorten(missing)}): see unida data check."
        )
    return [(path, name) for name in classes for path in images[name]]


def _with_noise(labels: list[str], share: float, seed: int) -> list[str]:
    classes = sorted(set(labels))
    number = {name: k for k, name in enumerate(classes)}
    true = np.array([number[name] for name in labels], dtype=np.int64)
    noisy = flip_labels(true, len(classes), share, seed)
    lost = sorted(set(range(len(classes))) - set(noisy.tolist()))
    if lost:
        raise UserError(
            f"label_noise {share} with seed {seed} leaves no source image labelled "
            f"{shorten([classes[k] for k in lost])}: take a smaller share."
        )
    return [classes[k] for k in noisy]


def _write_csv(path: Path, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """Write to a temporary name and rename; file names may be any bytes."""
    text = io.StringIO(newline="")
    # All cells in quotes: before Python 3.13 a lone carriage return would go without.
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(
        [to_cell(cell) for cell in row] for row in (header, *rows)
    )
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("xb") as file:
            file.write(text.getvalue().encode("utf-8", "surrogateescape"))
        part.replace(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from None
    finally:
        part.unlink(missing_ok=True)
