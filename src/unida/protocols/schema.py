"""The schema of a protocol file (TOML), built-in or of other data.

    name = "birds"
    domains = ["photos", "drawings"]          # folders below the root; every pair is a task
    classes = ["crow", "duck", "gull", "heron", "owl", "wren"]
    shared = ["crow", "duck"]                 # in both domains
    source_private = ["gull"]                 # in the source only
    target_private = "rest"                   # in the target only: the unknown classes
    [run]
    steps = 2000                              # any option of `unida adapt`

A part of the split is a list of names, a number (so many of `classes`, counted off in order) or
"rest". Several splits are tables called [settings.NAME]. Further keys: title; tasks, pairs of
domains; [folders], other names of a domain's folder; [files], a list file for a domain instead of
its folder; and what `unida data check` expects: [counts], images of a class in each domain,
[totals], images of a domain, [versions.NAME], totals of another release, and
[settings.NAME.images], images of a domain as source, as target and unknown.

[methods.NAME] has what the authors of a method ran on the data set, for a method or a preset:
`settings` of the method and `options` of the run. A bench uses them unless told otherwise.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unida.config import RunConfig
from unida.errors import UserError, require, shorten
from unida.protocols.names import Spellings, key_of
from unida.types import UNKNOWN
from unida.utils.lookalikes import look_of

PARTS = ("shared", "source_private", "target_private")
KEYS = (
    "name", "title", "domains", "tasks", "classes", *PARTS, "settings", "run",
    "folders", "files", "counts", "totals", "versions", "methods",
)  # fmt: skip
GIVEN_BY_THE_TASK = ("source", "target", "out")


@dataclass(frozen=True)
class Split:
    """Class names by the domains that have them, each part in the protocol's order."""

    shared: tuple[str, ...]
    source_private: tuple[str, ...]
    target_private: tuple[str, ...]

    @property
    def source(self) -> tuple[str, ...]:
        """The known classes: all of a source."""
        return self.shared + self.source_private

    @property
    def target(self) -> tuple[str, ...]:
        """All classes of a target."""
        return self.shared + self.target_private


@dataclass(frozen=True)
class Images:
    """Numbers of images of a domain in a setting; None where unknown.

    Attributes:
        source: as source.
        target: as target.
        unknown: those of the target that are of an unknown class.
    """

    source: int | None = None
    target: int | None = None
    unknown: int | None = None


@dataclass(frozen=True)
class Recipe:
    """What the authors of a method ran on a data set.

    Attributes:
        settings: of the method, where they are not its defaults or the same everywhere.
        options: of `RunConfig`.
    """

    settings: dict[str, Any]
    options: dict[str, Any]


@dataclass(frozen=True)
class Protocol:
    """A benchmark: domains, classes, and which of them source and target have.

    Attributes:
        name: short, for commands and folders.
        title: for tables and pages.
        domains: in the paper's order.
        tasks: pairs of source and target in the paper's order of columns.
        classes: all names, in the order from which splits are counted off.
        splits: by setting.
        run: options of `RunConfig` for this data set.
        folders: by domain, further names of its folder.
        files: by domain, the list file to read instead of a folder.
        counts: by domain and class, how many images there are; empty where it is not known.
        totals: by domain, how many images there are, where it is known.
        images: by setting and domain, where class counts are not known.
        versions: by name of another release, its totals.
        methods: by method or preset, what its authors ran on this data set.
    """

    name: str
    title: str
    domains: tuple[str, ...]
    tasks: tuple[tuple[str, str], ...]
    classes: tuple[str, ...]
    splits: dict[str, Split]
    run: dict[str, Any] = field(default_factory=dict)
    folders: dict[str, tuple[str, ...]] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    images: dict[str, dict[str, Images]] = field(default_factory=dict)
    versions: dict[str, dict[str, int]] = field(default_factory=dict)
    methods: dict[str, Recipe] = field(default_factory=dict)

    @property
    def domain_names(self) -> Spellings:
        """The domains by all their names."""
        return Spellings({domain: self.folders.get(domain, ()) for domain in self.domains})

    def expected(self, setting: str, domain: str) -> Images:
        """Return how many images the domain should have in the setting."""
        if domain not in self.counts:
            return self.images.get(setting, {}).get(domain, Images())
        return count_images(self.counts[domain], self.splits[setting])


def count_images(counts: Mapping[str, int], split: Split) -> Images:
    """Count the images of a domain as source, target and unknown; no count of a class is 0."""
    parts = (split.source, split.target, split.target_private)
    return Images(*(sum(counts.get(name, 0) for name in part) for part in parts))


def parse_protocol(content: Mapping[str, Any], where: str, folder: Path) -> Protocol:
    """Build a protocol from the content of a TOML file; a misspelt key is an error.

    Args:
        content: as read from the file.
        where: name of the file, for error sentences and as the default name.
        folder: that of the file; list files are relative to it.
    """
    _check_keys(content, KEYS, where)
    require("domains" in content, f"domains of {where}", None, "two names or more")
    domains = _names(content["domains"], f"domains of {where}")
    require(len(domains) > 1, f"domains of {where}", list(domains), "two names or more")
    _check_distinct(domains, f"domains of {where}")
    for domain in domains:
        require("," not in domain, f"a domain of {where}", domain, "a name without a comma")
    name = str(content.get("name", Path(where).stem))
    require(
        bool(re.fullmatch(r"\w[\w.-]*", name)), f"name of {where}", name, "letters, digits, -._"
    )
    settings = _settings(content, where)
    classes = _classes(content, settings, where)
    counts = _class_counts(content, domains, classes, where)
    return Protocol(
        name=name,
        title=str(content.get("title", name)),
        domains=domains,
        tasks=_tasks(content, domains, where),
        classes=classes,
        splits=dict(_named_split(key, part, classes, where) for key, part in settings.items()),
        run=_run(_table(content, "run", where), f"[run] of {where}"),
        folders={
            d: _names(v, f"folders.{d} of {where}")
            for d, v in _by_domain(content, "folders", domains, where).items()
        },
        files={d: folder / str(v) for d, v in _by_domain(content, "files", domains, where).items()},
        counts=counts,
        totals=_totals(content, "totals", domains, where)
        or {domain: sum(of_class.values()) for domain, of_class in counts.items()},
        images={key: _images(key, part, domains, where) for key, part in settings.items() if key},
        versions={
            key: _totals(_table(content, "versions", where), key, domains, where)
            for key in _table(content, "versions", where)
        },
        methods={
            key: _recipe(_table(_table(content, "methods", where), key, where), key, where)
            for key in _table(content, "methods", where)
        },
    )


def _settings(content: Mapping[str, Any], where: str) -> dict[str, dict[str, Any]]:
    """Read the splits of the file by setting; "" is a split without a name."""
    plain = {part: content[part] for part in PARTS if part in content}
    named = _table(content, "settings", where)
    if bool(plain) == bool(named):
        raise UserError(
            f"{where} needs either {', '.join(PARTS)}, or tables called [settings.NAME]."
        )
    settings = {"": plain} if plain else {key: _table(named, key, where) for key in named}
    for key, given in settings.items():
        _check_keys(given, (*PARTS, "images"), f"settings.{key} of {where}")
    return settings


def _classes(
    content: Mapping[str, Any], settings: dict[str, dict[str, Any]], where: str
) -> tuple[str, ...]:
    """Read the class list; without one, the classes that the only split names."""
    if "classes" in content:
        classes = _names(content["classes"], f"classes of {where}")
    else:
        given = [parts.get(part, []) for parts in settings.values() for part in PARTS]
        if len(settings) > 1 or not all(isinstance(names, list) for names in given):
            raise UserError(f"{where} needs a list called classes to count off or leave a rest.")
        classes = tuple(name for names in given for name in _names(names, f"a class of {where}"))
    require(len(classes) > 1, f"classes of {where}", list(classes), "two names or more")
    unknown = [name for name in classes if look_of(name) == UNKNOWN]
    require(not unknown, f"a class of {where}", shorten(unknown), "any other name")
    _check_distinct(classes, f"classes of {where}", look_of)
    return classes


def _named_split(
    setting: str, given: Mapping[str, Any], classes: tuple[str, ...], where: str
) -> tuple[str, Split]:
    split = _split(given, classes, f"settings.{setting} of {where}" if setting else where)
    return setting or _kind(split), split


def _split(given: Mapping[str, Any], classes: tuple[str, ...], where: str) -> Split:
    """Resolve a split: names first, then numbers counted off in order, then the rest."""
    parts: dict[str, tuple[str, ...]] = {}
    given_parts = {part: given.get(part, 0) for part in PARTS}

    def left() -> tuple[str, ...]:
        taken = set(itertools.chain(*parts.values()))
        return tuple(name for name in classes if name not in taken)

    for part, value in given_parts.items():
        if isinstance(value, list):
            parts[part] = _names(value, f"{part} of {where}")
            for name in parts[part]:
                require(name in classes, f"{part} of {where}", name, shorten(list(classes), 12))
    for part, value in given_parts.items():
        if isinstance(value, int) and not isinstance(value, bool):
            fits = 0 <= value <= len(left())
            require(fits, f"{part} of {where}", value, f"0 to {len(left())}, the classes left")
            parts[part] = left()[:value]
        elif not isinstance(value, list):
            require(value == "rest", f"{part} of {where}", value, "a list, a number or 'rest'")
    rests = [part for part in PARTS if given_parts[part] == "rest"]
    require(len(rests) < 2, f"'rest' of {where}", " and ".join(rests), "one part")
    parts |= {part: left() for part in rests}
    split = Split(*(parts[part] for part in PARTS))
    _check_distinct(list(split.source + split.target_private), f"split of {where}", str)
    require(bool(split.shared), f"shared of {where}", [], "one class or more")
    require(len(split.source) > 1, f"known classes of {where}", list(split.source), "two or more")
    return split


def _kind(split: Split) -> str:
    """Return the usual name of such a setting."""
    if split.source_private:
        return "unda" if split.target_private else "pda"
    return "oda" if split.target_private else "closed"


def _tasks(
    content: Mapping[str, Any], domains: tuple[str, ...], where: str
) -> tuple[tuple[str, str], ...]:
    pairs = tuple(itertools.permutations(domains, 2))
    if "tasks" not in content:
        return pairs
    given, field_ = content["tasks"], f"tasks of {where}"
    require(isinstance(given, list) and bool(given), field_, given, "a list of pairs of domains")
    for pair in given:
        ok = isinstance(pair, list) and tuple(pair) in pairs
        require(ok, f"a task of {where}", pair, f"two different ones of {', '.join(domains)}")
    return tuple((source, target) for source, target in given)


def _run(given: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the options as `RunConfig` types them, so that a bad one is found here."""
    for name in GIVEN_BY_THE_TASK:
        require(name not in given, f"an option in {where}", name, "what no task gives")
    try:
        options = RunConfig.from_flat(**given).flat()
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    return {name: options[name] for name in given}


def _recipe(given: dict[str, Any], name: str, where: str) -> Recipe:
    where = f"[methods.{name}] of {where}"
    _check_keys(given, ("settings", "options"), where)
    settings, options = (_table(given, key, where) for key in ("settings", "options"))
    for key, value in settings.items():
        plain = isinstance(value, str | int | float)
        require(plain, f"{key} in {where}", value, "a text, a number, true or false")
    return Recipe(settings, _run(options, f"the options in {where}"))


def _class_counts(
    content: Mapping[str, Any], domains: tuple[str, ...], classes: tuple[str, ...], where: str
) -> dict[str, dict[str, int]]:
    table = _table(content, "counts", where)
    if not table:
        return {}
    _check_keys(table, classes, f"[counts] of {where}")
    for name in classes:
        row, field_ = table.get(name), f"counts.{name} of {where}"
        ok = isinstance(row, list) and len(row) == len(domains) and all(map(_is_count, row))
        require(ok, field_, row, f"{len(domains)} whole numbers, one a domain")
    return {d: {name: table[name][i] for name in classes} for i, d in enumerate(domains)}


def _totals(
    content: Mapping[str, Any], key: str, domains: tuple[str, ...], where: str
) -> dict[str, int]:
    totals = _by_domain(content, key, domains, where)
    for domain, value in totals.items():
        require(_is_count(value), f"{key}.{domain} of {where}", value, "a whole number")
    return totals


def _images(
    setting: str, given: Mapping[str, Any], domains: tuple[str, ...], where: str
) -> dict[str, Images]:
    where = f"settings.{setting} of {where}"
    tables = _by_domain(given, "images", domains, where)
    for domain in tables:
        row = _table(tables, domain, where)
        _check_keys(row, ("source", "target", "unknown"), f"images.{domain} of {where}")
        for role, value in row.items():
            require(_is_count(value), f"{role} of {where}", value, "a whole number")
    return {domain: Images(**row) for domain, row in tables.items()}


def _by_domain(
    content: Mapping[str, Any], key: str, domains: tuple[str, ...], where: str
) -> dict[str, Any]:
    table = _table(content, key, where)
    _check_keys(table, domains, f"[{key}] of {where}")
    return table


def _table(content: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = content.get(key, {})
    require(isinstance(value, dict), f"{key} of {where}", value, "a table")
    return dict(value)


def _names(value: object, field_: str) -> tuple[str, ...]:
    """Read names as text; a number, such as the class 7 of the digits, needs no quotes."""
    require(isinstance(value, list), field_, value, "a list of names")
    assert isinstance(value, list)
    for name in value:
        ok = isinstance(name, str | int) and not isinstance(name, bool)
        require(ok and bool(str(name).strip()), field_, name, "a name")
        require(str(name).isprintable(), field_, name, "a name in one line of text")
    names = tuple(map(str, value))
    _check_distinct(names, field_, str)
    return names


def _check_distinct(
    names: Iterable[str], field_: str, normalise: Callable[[str], str] = key_of
) -> None:
    twice = [key for key, n in Counter(map(normalise, names)).items() if n > 1]
    if twice:
        raise UserError(f"{field_} has names more than once or too much alike: {shorten(twice)}.")


def _check_keys(given: Mapping[str, Any], allowed: tuple[str, ...], where: str) -> None:
    for key in given:
        require(key in allowed, f"a key of {where}", key, shorten(list(allowed), 20))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
