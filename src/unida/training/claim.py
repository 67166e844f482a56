"""A run folder belongs to one run at a time: its lock, and what killed runs leave in it."""

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from unida.config import RunConfig
from unida.errors import UserError, shorten
from unida.methods.presets import load_config
from unida.training.run_folder import RunFolder, differences
from unida.utils import distributed
from unida.utils.locks import NO_LOCKS, held, read_holder, write_holder
from unida.utils.logs import logger

NOT_EMPTY = "{} is there and not an empty folder: name another --out."


@contextmanager
def claimed(run: RunFolder, config: RunConfig, resume: bool) -> Iterator[None]:
    """Hold the folder while the block runs, if it is free or, to be resumed, holds this run.

    The main process holds it. A folder that is made for the run and stays empty is removed again.
    """
    if not distributed.is_main_process():
        yield
        return
    made = not os.path.lexists(run.path)
    try:
        with locked(run):
            _refuse_if_taken(run, config, resume)
            remove_leftovers(run)
            yield
    finally:
        if made:
            with suppress(OSError):  # the run has begun
                run.path.rmdir()


@contextmanager
def locked(run: RunFolder) -> Iterator[None]:
    """Hold the lock of a folder while the block runs; the folder is made if it is not there."""
    with ExitStack() as stack:
        try:
            run.path.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(held(run.lock, remove=True))
            if file is not None:
                write_holder(file)
        except FileExistsError:
            raise UserError(NOT_EMPTY.format(run.path)) from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise UserError(f"{run.path} cannot be used: {error.strerror}.") from None
            logger.warning("%s cannot be locked: let no other run write there.", run.path)
        else:
            if file is None:
                raise UserError(
                    f"{run.path} is in use by {read_holder(run.lock)}: wait for its end, or name "
                    "another --out."
                )
        yield


def leftovers(run: RunFolder) -> list[Path]:
    """Return what kills have left: parts of files and, of a finished run, checkpoints."""
    names = "|".join(re.escape(file.name) for file in vars(run).values())
    ours = re.compile(rf"\.({names})(\.\w+)?\.part")
    folders = (run.path, *run.path.glob("member-*"))
    parts = [part for folder in folders for part in folder.glob(".*.part")]
    found = [part for part in parts if ours.fullmatch(part.name)]
    return found + (run.states() if run.done.exists() else [])


def remove_leftovers(run: RunFolder) -> None:
    """Remove what kills have left in a locked folder."""
    for file in leftovers(run):
        file.unlink(missing_ok=True)


def _refuse_if_taken(run: RunFolder, config: RunConfig, resume: bool) -> None:
    begun, done = run.config.exists(), run.done.exists()
    free = {run.source, run.source_embeddings, run.lock, *leftovers(run)}
    if resume and begun and not done:
        changed = differences(load_config(run.config), config)
        if changed:
            raise UserError(
                f"{run.path} was started with other settings ({shorten(changed)}): "
                "leave them out to go on with that run, or name another --out."
            )
    elif begun:
        state = "a finished" if done else "an unfinished"
        advice = "" if done else ", or go on with it by --resume"
        raise UserError(f"{run.path} holds {state} run: name another --out{advice}.")
    elif not free.issuperset(run.path.iterdir()):
        raise UserError(NOT_EMPTY.format(run.path))
