"""`unida review`: a page on which a person names categories and corrects labels."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from unida.cli.parser import Command
from unida.utils.logs import logger


@dataclass(frozen=True)
class Review(Command):
    """Name categories and correct labels on a page, for adapt --continue.

    Example: unida review runs/first
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a finished run."""
    port: int = 0
    """Port on this machine; 0 takes a free one."""
    browser: bool = True
    """Open the page in the browser."""
    budget: int | None = None
    """Show so many images first, drawn at random from those without a correction."""

    def execute(self) -> None:
        """Serve the page until Ctrl-C."""
        from unida.review.server import serve

        corrections = serve(self.run, self.port, self.browser, self.budget)
        if corrections:
            logger.info(
                "Named categories: %d, corrected labels: %d. Continue with "
                "`unida adapt --continue %s --out NEW`.",
                len(corrections.names),
                len(corrections.labels),
                self.run,
            )
        else:
            logger.info(
                "Nothing is named or corrected: `unida review %s` opens the page again.", self.run
            )
