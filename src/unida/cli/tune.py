"""`unida tune`: a search over settings."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Self

from rich.console import Console
from rich.table import Table

from unida.bench.tune.options import StudyOptions
from unida.cli.options import RunOptions, value_of
from unida.cli.parser import parse
from unida.cli.terminal import show_progress
from unida.utils.logs import logger


@dataclass(frozen=True)
class Tune(RunOptions):
    """Search settings of a method, chosen without target labels.

    The same command goes on with the study, or helps from another machine.

    Options of a run and --set are as for unida adapt.

    With --protocol and --task the outcome becomes a row of unida table.

    Example: unida tune --source photos --target sketches --out study

    Example: unida tune --source a --target b --out study --space lam=0.1,0.3,1
    """

    study: StudyOptions = field(default_factory=StudyOptions)

    @classmethod
    def parse(cls, name: str, args: list[str]) -> Self:
        """Options left out are those of the preset, on the data set of --protocol if given."""
        data = value_of("--protocol", args)
        if data is None:
            return super().parse(name, args)
        from unida.bench.entries import parse_entry
        from unida.protocols.tasks import load_protocol

        protocol, preset = load_protocol(data), value_of("--method", args) or cls.method
        method = f"{preset}@{data}" if preset in protocol.methods else preset
        config = parse_entry(method).config({"holdout": 0.0} | protocol.run)
        default = dataclasses.replace(cls.of(config), method=method, settings=())
        return dataclasses.replace(parse(cls, name, args, default), method=method)

    def execute(self) -> None:
        """Run the trials that are left, and print all and the best."""
        from unida.bench.tune.run import format_values, run_tune
        from unida.evaluation.selection import CRITERIA

        try:
            with show_progress() as progress:
                found = run_tune(self.config(), self.study, progress)
        except KeyboardInterrupt:
            logger.info("The same command goes on with the study.")
            raise
        if found is None:
            return
        plan, best = found.plan, found.best
        table = Table(title=f"{plan.config.method}, {plan.how}")
        for name in ("trial", *plan.space, plan.criterion):
            table.add_column(name, justify="right")
        for trial in sorted(found.trials, key=lambda trial: (-_or_last(trial.value), trial.number)):
            value = trial.state if trial.value is None else f"{trial.value:.4f}"
            fields = (format_values({name: trial.values.get(name, "")}) for name in plan.space)
            cells = (text.partition("=")[2] for text in fields)
            style = "bold" if trial is best else None
            table.add_row(plan.run(trial.number).name, *cells, value, style=style)
        Console().print(table)
        if ties := sum(trial.value == best.value for trial in found.trials) - 1:
            logger.info("%d more of the trials reach the same value; the first was taken.", ties)
        logger.info("%s (%s):", plan.how, CRITERIA[plan.criterion].about)
        settings = format_values(best.values)
        logger.info("%s is best. %s has it, and", settings, plan.file("best.json"))
        logger.info("  %s", found.command)
        same = "" if plan.by_validation else f"; the same run is {plan.run(best.number)}"
        logger.info("runs it%s.", same)
        if found.results:
            logger.info("Its row: unida table %s", found.results)


def _or_last(value: float | None) -> float:
    return -math.inf if value is None else value
