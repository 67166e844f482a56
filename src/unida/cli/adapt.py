"""`unida adapt`: the main job."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Self

import tyro

from unida.cli.options import RunOptions
from unida.cli.terminal import show_progress
from unida.config import RunConfig
from unida.errors import UserError

NOT_WITH_EMBEDDINGS = (
    "source", "target", "image-size", "backbone", "weights", "frozen", "no-frozen", "frozen-views",
    "batch-norm",
)  # fmt: skip
"""Options of images and of networks for them."""


@dataclass(frozen=True)
class Adapt(RunOptions):
    """Adapt a classifier to unlabelled target images.

    Example: unida adapt --source photos --target sketches --out runs/first

    Example: unida adapt --resume --out runs/first

    Example: unida adapt --continue runs/first --out runs/second
    """

    headings: ClassVar[dict[str, tuple[str, ...]]] = RunOptions.headings | {
        "continuation": ("resume", "continue_", "min_confidence", "trust"),
    }

    resume: bool = False
    """Go on with the unfinished run in --out; options left out are taken from it."""
    continue_: Annotated[Path | None, tyro.conf.arg(name="continue", metavar="RUN")] = None
    """Train again with what `unida review RUN` saved: named categories become known classes.
    Options left out are taken from RUN, whose trained backbone is started from."""
    embeddings: Annotated[tuple[Path, Path] | None, tyro.conf.arg(metavar="SOURCE TARGET")] = None
    """Train on embeddings instead of images: two files of `unida embed` or of your own, .parquet
    or .npy (docs/embeddings.md). They take the place of --source, --target and the backbone."""
    min_confidence: float = 0.5
    """With --continue: images less sure to be in their category are left out."""
    trust: float = 0.9
    """With --continue: target images predicted to be of a known class with this confidence or more,
    and not corrected, are learned from too; 2 is none."""

    @classmethod
    def parse(cls, name: str, args: list[str]) -> Self:
        """Options left out are those of the preset, or of the run that is taken up."""
        from unida.methods.presets import load_config
        from unida.review.continuation import next_config
        from unida.training.run_folder import RunFolder

        given = super().parse(name, args)
        if given.embeddings:
            _refuse_beside_embeddings(args)
        out = given.output.out
        if given.continue_:
            if given.resume:
                raise UserError("Resume a continued run like any other: --out and --resume alone.")
            return cls.parse_beside(name, args, next_config(given.continue_))
        if given.resume and (stored := RunFolder(out).config).exists():
            return cls.parse_beside(name, args, load_config(stored))
        if given.resume and out and not (given.data.source or given.data.source_model):
            raise UserError(f"{out} holds no run to resume: give the whole command again.")
        return given

    def config(self) -> RunConfig:
        """Make the configuration; embeddings are its source and target."""
        config = super().config()
        if not self.embeddings:
            return config
        source, target = map(str, self.embeddings)
        return config.replace(source=source, target=target)

    def execute(self) -> None:
        """Train, or train again with what was reviewed."""
        from unida.pipeline import run_adaptation
        from unida.review.continuation import drop_foreign_weights, next_config, run_continuation

        config = self.config()
        with show_progress() as progress:
            if self.continue_:
                config = drop_foreign_weights(config, next_config(self.continue_))
                numbers = (self.min_confidence, self.trust)
                run_continuation(self.continue_, config, *numbers, progress=progress)
            else:
                run_adaptation(config, resume=self.resume, progress=progress)


def _refuse_beside_embeddings(args: list[str]) -> None:
    given = {word.partition("=")[0] for word in args}
    if wrong := [name for name in NOT_WITH_EMBEDDINGS if f"--{name}" in given]:
        raise UserError(
            f"--{wrong[0]} has no meaning with --embeddings, which stand for the images and their "
            "network: leave one of the two out."
        )
