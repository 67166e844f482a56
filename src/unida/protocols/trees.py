"""Finding the domains and classes of a data set in the folders of a local copy."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from unida.data.samples import Samples, read_labelled
from unida.errors import UserError, shorten
from unida.protocols.lists import read_list
from unida.protocols.names import Spellings, key_of
from unida.protocols.schema import Protocol

PACKED = frozenset({".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".7z", ".rar"})


@dataclass(frozen=True)
class DomainImages:
    """The images of one domain.

    Attributes:
        place: its folder, or the list file it was read from.
        images: by class of the protocol.
        unmatched: class folders that are no class of the protocol.
    """

    place: Path
    images: dict[str, tuple[Path, ...]]
    unmatched: tuple[str, ...]


def find_images(protocol: Protocol, domain: str, root: Path) -> DomainImages:
    """Find the images of a domain below `root`, by class."""
    if domain in protocol.files:
        place = protocol.files[domain]
        samples = read_list(place, root, domain)
    else:
        place = find_folder(protocol, domain, root)
        samples = read_labelled(place)
    classes = Spellings(dict.fromkeys(protocol.classes, ()))
    owner = {name: classes.find(name) for name in samples.classes}
    _check_one_folder(owner, place)
    groups = _by_class(samples)
    images = {c: groups[name] for name, c in owner.items() if c is not None}
    unmatched = tuple(name for name, c in owner.items() if c is None)
    return DomainImages(place, images, unmatched)


def find_folder(protocol: Protocol, domain: str, root: Path) -> Path:
    """Find the folder of a domain's class folders, under any of the domain's names."""
    names = protocol.domain_names
    found = [folder for folder in _folders(root) if names.find(folder.name) == domain]
    if not found:
        raise UserError(_nothing_found(protocol, domain, root))
    if len(found) > 1:
        several = ", ".join(folder.name for folder in found)
        raise UserError(f"{root} has {len(found)} folders for {domain} ({several}): remove one.")
    return _enter_images(found[0], protocol)


def _enter_images(folder: Path, protocol: Protocol) -> Path:
    """Enter `images`, which Office-31 is published with between a domain and its classes."""
    classes = Spellings(dict.fromkeys(protocol.classes, ()))
    inside = _folders(folder)
    inner = [f for f in inside if key_of(f.name) == "images"]
    has_classes = any(classes.find(f.name) for f in inside)
    return inner[0] if len(inner) == 1 and not has_classes else folder


def _nothing_found(protocol: Protocol, domain: str, root: Path) -> str:
    """Compose the error sentence; two usual causes are checked: packed files, a folder above."""
    names = protocol.domain_names
    expected = " or ".join((domain, *protocol.folders.get(domain, ())))
    sentence = f"{root} has no folder for {domain}: {expected} is expected"
    packed = [
        file.name
        for file in sorted(root.iterdir())
        if file.suffix.lower() in PACKED and names.find(file.name.split(".")[0]) == domain
    ]
    if packed:
        return f"{sentence}; {packed[0]} is there, so unpack it."
    deeper = [f for f in _folders(root) if any(names.find(g.name) for g in _folders(f))]
    if len(deeper) == 1:
        return f"{sentence}; {deeper[0]} has domains in it, so perhaps that is the root."
    return f"{sentence}."


def _folders(place: Path) -> list[Path]:
    try:
        return sorted(f for f in place.iterdir() if f.is_dir() and not f.name.startswith("."))
    except OSError as error:
        raise UserError(f"{place} cannot be read: {error.strerror}.") from None


def _check_one_folder(owner: Mapping[str, str | None], place: Path) -> None:
    for expected in set(owner.values()) - {None}:
        several = [name for name, c in owner.items() if c == expected]
        if len(several) > 1:
            raise UserError(
                f"{place} has {len(several)} folders for the class {expected} "
                f"({shorten(several)}): remove one."
            )


def _by_class(samples: Samples) -> dict[str, tuple[Path, ...]]:
    assert samples.labels is not None
    groups: dict[str, list[Path]] = {name: [] for name in samples.classes}
    for path, k in zip(samples.paths, samples.labels, strict=True):
        groups[samples.classes[k]].append(path)
    return {name: tuple(paths) for name, paths in groups.items()}
