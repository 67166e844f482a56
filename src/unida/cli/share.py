"""`unida share`: a model with its card, as a folder or on the Hugging Face hub."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from unida.cli.parser import Command
from unida.utils.logs import logger


@dataclass(frozen=True)
class Share(Command):
    """Write a trained model with a card into a folder or to the hub.

    Example: unida share runs/first --to hf:owner/name --license mit
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a finished run, a model.safetensors, or hf:owner/name."""
    to: str
    """A new folder, or hf:owner/name."""
    license: str | None = None
    """Licence of the model, as the hub calls it, such as mit; none is assumed."""
    public: bool = False
    """Let everyone see a new repository of the hub."""
    force: bool = False
    """Write over a model that is there."""

    def execute(self) -> None:
        """Load the model and share it."""
        from unida.model import load
        from unida.sharing.hub import is_hub_place

        model = load(self.run, "cpu")
        if is_hub_place(self.to):
            place = model.push_to_hub(
                self.to, license=self.license, private=not self.public, force=self.force
            )
        else:
            place = str(model.save_pretrained(self.to, license=self.license, force=self.force))
        logger.info("%s holds the model and its card. Read the card before others do.", place)
