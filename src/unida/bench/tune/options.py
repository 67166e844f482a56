"""Options of a study."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro

Sampler = Literal["grid", "tpe", "random"]


@dataclass(frozen=True)
class StudyOptions:
    """The study: what is searched and how it is chosen; --out is its folder."""

    headings: ClassVar[dict[str, tuple[str, ...]]] = {
        "search": ("space", "trials", "sampler"),
        "selection": ("criterion", "share_hidden", "share_held_out", "oracle", "labels"),
        "benchmark": ("protocol", "task", "setting", "root", "results"),
        "storage": ("storage", "study", "retake"),
    }

    space: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FIELD=SPEC")] = ()
    """What is searched: settings of the method or options of a run, as in --space lam=0.1,0.3,1
    beta=0.1..1 lr=1e-4..1e-1:log. By default, for san, a grid over lam, beta and alpha."""
    trials: int | None = None
    """Trials of the study, all machines together; by default the whole grid, or 20."""
    sampler: Sampler = "grid"
    """grid: every combination once; tpe: Optuna's model of what is good; random."""
    criterion: str | None = None
    """How settings are chosen: source_validation (the default), entropy, neighbourhood_density or
    separation. All do without target labels."""
    oracle: bool = False
    """Choose by target labels instead. For reference only: everything written says 'oracle'."""
    labels: Path | None = None
    """With --oracle: the target in class folders, a list file or a CSV."""
    protocol: str | None = None
    """Instead of --source and --target: a data set of the benchmarks, or a TOML file of your own.
    The settings chosen are trained on the whole task, and become a row of unida table."""
    task: str = ""
    """With --protocol: the task, as in Art-Product."""
    setting: str = "unda"
    """With --protocol: unda, oda, pda, closed, or another of the protocol."""
    root: Path | None = None
    """With --protocol: folder of the data set. The digits need none."""
    results: Path | None = None
    """With --protocol: folder of a bench to add the row to; by default results in --out."""
    storage: str | None = None
    """Where the study is kept: a journal file, by default in --out, or the URL of a database such
    as postgresql://…, so that machines without a common folder can share it."""
    study: str | None = None
    """Name of the study in the storage; by default made from what it is."""
    retake: bool = False
    """Also take over trials that other machines began and did not finish. Only if none of them
    works on the study any more."""
    share_hidden: float = 0.25
    """source_validation: share of the source classes that play unknown."""
    share_held_out: float = 0.2
    """source_validation: share of the other classes' images that are held out."""
