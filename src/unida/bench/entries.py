"""What a benchmark compares: methods, each as it is or with some settings."""

from dataclasses import dataclass

from unida.config import parse_settings
from unida.errors import require
from unida.methods import METHODS


@dataclass(frozen=True)
class BenchEntry:
    """A row of a table.

    Attributes:
        name: as the user wrote it.
        method: key of `METHODS`.
        settings: `key=value` texts.
    """

    name: str
    method: str
    settings: tuple[str, ...] = ()

    @property
    def is_reconstruction(self) -> bool:
        return METHODS[self.method].about.spec == "reconstruction"


AS_PUBLISHED = ("lam=1", "width=0", "hidden=2", "projection_lr=0.01", "neighbours=0")
"""Of our own defaults of SAN, those that its authors do not have, undone."""

VARIANTS: dict[str, BenchEntry] = {
    entry.name: entry
    for entry in (
        # The rows of the paper's ablation, and its two forms of the losses.
        BenchEntry("san-no-aio", "san", ("classifier=closed_and_open",)),
        BenchEntry("san-no-scl", "san", ("contrast=none",)),
        BenchEntry("san-info-nce", "san", ("contrast=info_nce",)),
        BenchEntry("san-released", "san", ("contrast=released", *AS_PUBLISHED)),
        BenchEntry(
            "san-paper",
            "san",
            ("contrast=paper", "third=log", "head=linear", "entropy=0", *AS_PUBLISHED),
        ),
        BenchEntry("spa-ovanet", "spa", ("base=ovanet",)),
    )
}
"""Settings worth a name of their own."""


def parse_entry(text: str) -> BenchEntry:
    """`san`, a name of `VARIANTS`, or a method with settings: `san:lam=0.3:contrast=none`."""
    name, *settings = text.split(":")
    known = VARIANTS.get(name) or BenchEntry(name, name)
    allowed = ", ".join([*METHODS, *VARIANTS])
    require(known.method in METHODS, "a method", name, f"{allowed}, or one with :KEY=VALUE")
    entry = BenchEntry(text, known.method, (*known.settings, *settings))
    parse_settings(METHODS[entry.method].Config, entry.settings, text)
    return entry
