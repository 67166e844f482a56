"""`unida embed`: embeddings of images, in a file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from unida.cli.parser import Command
from unida.cli.terminal import log_skipped, show_progress
from unida.utils.logs import logger


@dataclass(frozen=True)
class Embed(Command):
    """Write embeddings of images to a file.

    With their paths and, if there are any, labels. A killed command goes on.

    Example: unida embed photos --to photos.parquet --backbone resnet50
    """

    images: Annotated[Path, tyro.conf.Positional]
    """Folder of images, list file, CSV or one image."""
    to: Path
    """File to write: .parquet, or .npy with the paths in a .csv beside it."""
    backbone: str = "resnet50"
    """A backbone, as of `unida adapt`."""
    weights: str | None = None
    """Its weights: a safetensors or torch file, or 'none' for random ones. By default the published
    ones."""
    image_size: int = 224
    """Side of the network's square input, in pixels."""
    cache_dir: Path | None = None
    """Cache folder, the same as of `unida adapt --frozen`: no image is embedded twice. By default
    unida under the user's cache folder."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    force: bool = False
    """Write over files that are there."""

    def execute(self) -> None:
        """Embed, and write the file."""
        from unida.data.samples import Skipped
        from unida.embedding import embed

        skipped: list[Skipped] = []
        with show_progress() as progress:
            table = embed(
                self.images,
                self.to,
                backbone=self.backbone,
                weights=self.weights,
                image_size=self.image_size,
                device=self.device,
                cache_dir=self.cache_dir,
                force=self.force,
                skipped=skipped,
                progress=progress,
            )
        log_skipped(skipped)
        labels = "without labels"
        if table.labels is not None:
            labels = f"with labels of {len(set(table.labels))} classes"
        logger.info(
            "%s: %d embeddings of %d numbers, %s.", self.to, *table.embeddings.shape, labels
        )
