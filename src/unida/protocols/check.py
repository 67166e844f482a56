"""`unida data check`: are all images of a benchmark there, and as many as there should be?"""

from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table
from rich.text import Text

from unida.errors import UserError, shorten
from unida.protocols.schema import Images, Protocol, count_images
from unida.protocols.tasks import split_of
from unida.protocols.trees import DomainImages, find_images


@dataclass(frozen=True)
class Count:
    """Images of a class: found, and expected if that is known."""

    found: int
    expected: int | None


@dataclass(frozen=True)
class DomainReport:
    """Result of the check of one domain.

    Attributes:
        domain: its name.
        place: folder below the root, or list file; None where it was not found.
        classes: by class that is needed, in order.
        expected: images of all these classes, if that is known.
        roles: images as source, as target and unknown, where a setting was given.
        roles_expected: how many these should be.
    """

    domain: str
    place: str | None
    classes: dict[str, Count]
    expected: int | None
    roles: Images | None = None
    roles_expected: Images = field(default_factory=Images)

    @property
    def images(self) -> int:
        return sum(count.found for count in self.classes.values())


@dataclass(frozen=True)
class CheckReport:
    """Result of the check of a data set.

    Attributes:
        title: of the data set, with the setting if one was given.
        domains: in the protocol's order.
        problems: one sentence each; empty where all is well.
        notes: observations that are no problem.
    """

    title: str
    domains: tuple[DomainReport, ...]
    problems: list[str]
    notes: list[str]

    def table(self) -> Table:
        """Build a table of found and expected images, a row a domain."""
        table = Table(title=_printable(f"{self.title} (✓ is complete)"))
        by_setting = any(report.roles for report in self.domains)
        roles = ("as source", "as target", "unknown") if by_setting else ()
        for name in ("domain", "folder", "classes", "images", *roles):
            table.add_column(name, justify="left" if name in ("domain", "folder") else "right")
        for report in self.domains:
            table.add_row(*map(_printable, _cells(report, by_setting)))
        return table


def check(protocol: Protocol, root: str | Path, setting: str | None = None) -> CheckReport:
    """Check that all images of a protocol, or those of one setting, are in `root`."""
    root = Path(root)
    if not root.is_dir():
        raise UserError(f"{root} is no folder: name the one that has the domains in it.")
    if setting is not None:
        split_of(protocol, setting)  # raises for an unknown setting
    problems: list[str] = []
    notes: list[str] = []
    reports = tuple(
        _check_domain(protocol, domain, root, setting, problems, notes)
        for domain in protocol.domains
    )
    title = protocol.title + (f", {setting}" if setting else "")
    return CheckReport(title, reports, problems, notes)


def _check_domain(
    protocol: Protocol,
    domain: str,
    root: Path,
    setting: str | None,
    problems: list[str],
    notes: list[str],
) -> DomainReport:
    needed = _needed(protocol, domain, setting)
    expected = protocol.counts.get(domain, {})
    images = _find(protocol, domain, root, problems)
    found = {name: len(paths) for name, paths in images.images.items()} if images else {}
    report = DomainReport(
        domain,
        _relative(root, images.place) if images else None,
        {name: Count(found.get(name, 0), expected.get(name)) for name in needed},
        _expected_total(protocol, domain, needed),
        count_images(found, protocol.splits[setting]) if setting else None,
        protocol.expected(setting, domain) if setting else Images(),
    )
    if images:
        problems += _problems(protocol, report)
    if images and images.unmatched:
        names = shorten(list(images.unmatched))
        notes.append(f"{domain} has folders that are no class: {names}.")
    return report


def _find(protocol: Protocol, domain: str, root: Path, problems: list[str]) -> DomainImages | None:
    try:
        return find_images(protocol, domain, root)
    except UserError as error:
        problems.append(str(error))
        return None


def _relative(root: Path, place: Path) -> str:
    return str(place.relative_to(root) if place.is_relative_to(root) else place)


def _needed(protocol: Protocol, domain: str, setting: str | None) -> tuple[str, ...]:
    """List the classes the domain must have, as source or as target of some task."""
    if setting is None:
        return protocol.classes
    split = protocol.splits[setting]
    needed: set[str] = set()
    for source, target in protocol.tasks:
        needed |= set(split.source) if source == domain else set()
        needed |= set(split.target) if target == domain else set()
    return tuple(name for name in protocol.classes if name in needed)


def _expected_total(protocol: Protocol, domain: str, needed: tuple[str, ...]) -> int | None:
    if domain in protocol.counts:
        return sum(protocol.counts[domain][name] for name in needed)
    return protocol.totals.get(domain) if needed == protocol.classes else None


def _problems(protocol: Protocol, report: DomainReport) -> list[str]:
    missing = [name for name, count in report.classes.items() if not count.found]
    if missing:
        return [f"{report.domain} has no image of {len(missing)} of {len(report.classes)} classes: "
                f"{shorten(missing)}."]  # fmt: skip
    different = [
        f"{name} {count.found:,} instead of {count.expected:,}"
        for name, count in report.classes.items()
        if count.expected is not None and count.found != count.expected
    ]
    if different:
        return [f"{report.domain} has other image counts than expected: {shorten(different)}."]
    if report.expected is not None and report.images != report.expected:
        return [f"{report.domain} has {report.images:,} images instead of {report.expected:,}"
                f"{_version(protocol, report)}."]  # fmt: skip
    return [
        f"{report.domain} has {found:,} images {role} instead of {expected:,}."
        for role, found, expected in _roles(report)
        if found is not None and expected is not None and found != expected
    ]


def _version(protocol: Protocol, report: DomainReport) -> str:
    """Name the other release that has this count, if there is one."""
    names = [
        name
        for name, totals in protocol.versions.items()
        if totals.get(report.domain) == report.images
    ]
    return f"; that is the {names[0]} release" if names else ""


def _roles(report: DomainReport) -> list[tuple[str, int | None, int | None]]:
    found, expected = report.roles or Images(), report.roles_expected
    return [
        ("as source", found.source, expected.source),
        ("as target", found.target, expected.target),
        ("unknown", found.unknown, expected.unknown),
    ]


def _cells(report: DomainReport, by_setting: bool) -> list[str]:
    found_classes = sum(count.found > 0 for count in report.classes.values())
    cells = [
        report.domain,
        "missing" if report.place is None else report.place,
        _ratio(found_classes, len(report.classes)),
        _ratio(report.images, report.expected),
    ]
    roles = [_ratio(found or 0, expected) for _, found, expected in _roles(report)]
    return cells + (roles if by_setting else [])


def _ratio(found: int, expected: int | None) -> str:
    if expected is None:
        return f"{found:,}"
    return f"{found:,} ✓" if found == expected else f"{found:,} of {expected:,}"


def _printable(text: str) -> Text:
    """Make text without markup, with a question mark for every unprintable character."""
    return Text("".join(char if char.isprintable() else "?" for char in text))
