"""What a benchmark compares: methods and presets, each as it is or with some settings."""

from dataclasses import dataclass
from typing import Any

from unida.config import RunConfig, split_pairs
from unida.methods import METHODS
from unida.methods.presets import configure, find_preset, preset_on
from unida.protocols.schema import Protocol


@dataclass(frozen=True)
class BenchEntry:
    """A row of a table.

    Attributes:
        name: as the user wrote it.
        preset: a method or a preset.
        settings: `key=value` texts, on top of the preset's.
    """

    name: str
    preset: str
    settings: tuple[str, ...] = ()

    @property
    def method(self) -> str:
        return find_preset(self.preset).method

    @property
    def is_reconstruction(self) -> bool:
        return METHODS[self.method].about.spec == "reconstruction"

    def config(
        self, usual: dict[str, Any], protocol: Protocol | None = None, **options: Any
    ) -> RunConfig:
        """Make the configuration of a run.

        Args:
            usual: options that the preset's come before.
            protocol: of the data set, with what the method's authors ran on it.
            **options: options that come before the preset's.
        """
        preset = preset_on(self.preset, protocol) if protocol else find_preset(self.preset)
        return configure(preset, self.settings, **(usual | dict(preset.options) | options))


def parse_entry(text: str) -> BenchEntry:
    """Read `san`, a preset, or either with settings: `san:lam=0.3:contrast=none`."""
    name, *settings = text.split(":")
    entry = BenchEntry(text, name, tuple(settings))
    split_pairs(settings, "setting of " + text)
    entry.config({})  # a bad setting is found here
    return entry
