"""Options of a run, as `unida adapt` and `unida tune` take them."""

import dataclasses
import itertools
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Self

import tyro

from unida.cli.parser import Command, parse
from unida.config import (
    GROUP_OF,
    GROUPS,
    ComputeConfig,
    DataConfig,
    DecisionConfig,
    ModelConfig,
    OptimConfig,
    OutputConfig,
    RunConfig,
)


@dataclass(frozen=True)
class RunOptions(Command):
    """Options of a run, in the groups of `RunConfig`."""

    headings: ClassVar[dict[str, tuple[str, ...]]] = {"method": ("method", "settings")}

    method: str = "san"
    """A method or a preset; `unida methods` lists them. NAME@SET has the settings published for a
    data set, as in uniot@office-home."""
    settings: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="KEY=VALUE ...")] = ()
    """Settings of the method, as in --set beta=0.5 lam=0.3."""
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    decision: DecisionConfig = field(default_factory=DecisionConfig)
    output: OutputConfig = field(default_factory=OutputConfig)

    @classmethod
    def of(cls, config: RunConfig) -> Self:
        """Return the options that make a configuration."""
        settings = config.flat()["settings"]
        pairs = tuple(f"{name}={value}" for name, value in settings.items())
        return cls(config.method, pairs, **{group: getattr(config, group) for group in GROUPS})

    def config(self) -> RunConfig:
        """Make the configuration."""
        from unida.methods.presets import configure

        options = {name: getattr(getattr(self, group), name) for name, group in GROUP_OF.items()}
        return configure(self.method, self.settings, **options)

    @classmethod
    def parse(cls, name: str, args: list[str]) -> Self:
        """Options left out are those of the preset."""
        from unida.methods.presets import configure

        preset = value_of("--method", args) or cls.method
        default = dataclasses.replace(cls.of(configure(preset)), method=preset, settings=())
        return parse(cls, name, args, default)

    @classmethod
    def parse_beside(cls, name: str, args: list[str], base: RunConfig) -> Self:
        """Options left out are those of another run; so are settings, for the same method."""
        from unida.methods.presets import find_preset

        default = cls.of(base)
        given = parse(cls, name, args, default)
        if find_preset(given.method).method != base.method and given.settings == default.settings:
            given = dataclasses.replace(given, settings=())
        return given


def value_of(option: str, args: list[str]) -> str | None:
    """Return the value of an option that the defaults of others depend on."""
    found = None
    for word, value in itertools.pairwise([*args, ""]):
        if word == option and value:
            found = value
        elif word.startswith(f"{option}="):
            found = word.removeprefix(f"{option}=")
    return found
