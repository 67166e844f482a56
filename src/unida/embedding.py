"""Embed images with a network that is not trained: files in, a table of embeddings out."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from unida.config import RunConfig
from unida.data.domain import Domain, load_domains
from unida.data.embeddings import embed as embed_domain
from unida.data.embeddings import embed_shard
from unida.data.samples import Samples, Skipped, read_images
from unida.data.tables import (
    SUFFIXES,
    EmbeddingTable,
    import_parquet,
    is_table,
    paths_file,
    require_unicode,
)
from unida.errors import UserError, require
from unida.pipeline import make_backbone
from unida.training.run_folder import require_writable, write_file, write_lines
from unida.utils import distributed
from unida.utils.csv_files import csv_lines
from unida.utils.devices import pick_device
from unida.utils.locks import NO_LOCKS, held, read_holder, write_holder
from unida.utils.logs import logger
from unida.utils.progress import NO_PROGRESS, Progress, ignore, with_speed


def embed(
    images: str | Path | Sequence[str | Path],
    to: str | Path | None = None,
    *,
    backbone: str = "resnet50",
    weights: str | None = None,
    image_size: int = 224,
    device: str = "auto",
    cache_dir: str | Path | None = None,
    force: bool = False,
    skipped: list[Skipped] | None = None,
    progress: Progress = NO_PROGRESS,
) -> EmbeddingTable:
    """Embed images; what a run with `frozen` has embedded already is not computed again.

    Args:
        images: a folder, list file or CSV, one image, or several image files.
        to: file to write, .parquet or .npy; of the latter, the paths go to a .csv beside it.
        backbone: as of `adapt`.
        weights: of the backbone: a file, or `none` for random ones.
        image_size: side of the square the network sees.
        device: auto, cpu, cuda, cuda:N or mps.
        cache_dir: cache folder; by default unida under the user's cache folder.
        force: write over files that are there.
        skipped: collects images that cannot be used; they are left out.
        progress: shows what goes on.

    Returns:
        Absolute paths, embeddings (N, D), and labels where images are in class folders or a list
        or CSV has a label for each.
    """
    config = RunConfig.from_flat(
        backbone=backbone,
        weights=weights,
        image_size=image_size,
        device=device,
        cache_dir=None if cache_dir is None else os.path.abspath(cache_dir),
        frozen=True,
    )
    where = pick_device(device)
    distributed.setup(where)  # before the file is claimed: one process does
    with contextlib.ExitStack() as stack:
        if to is not None:
            stack.enter_context(_claimed(Path(to), force, images))
        samples = _read(images)
        if to is not None and Path(to).suffix.lower() == ".parquet":
            require_unicode(tuple(map(str, samples.paths)), Path(to))
        domain = _embed_samples(samples, config, where, progress)
        if skipped is not None:
            skipped += domain.samples.skipped
        table = _to_table(domain)
        if to is not None:
            write_table(table, Path(to))
    return table


def write_table(table: EmbeddingTable, to: Path) -> None:
    """Write a table, in the main process only; files that are there are replaced."""
    if not distributed.is_main_process():
        return
    if to.suffix.lower() == ".npy":
        beside = paths_file(to)
        beside.unlink(missing_ok=True)  # paths of other embeddings must not lie beside these
        write_file(to, lambda file: np.save(file, table.embeddings, allow_pickle=False))
        columns = [table.paths, *([] if table.labels is None else [table.labels])]
        write_lines(
            beside, csv_lines(("path", "label")[: len(columns)], zip(*columns, strict=True))
        )
        return
    parquet = import_parquet()
    import pyarrow

    flat = pyarrow.array(table.embeddings.reshape(-1))
    values = {"path": pyarrow.array(table.paths, pyarrow.string())}
    if table.labels is not None:
        values["label"] = pyarrow.array(table.labels, pyarrow.string())
    values["embedding"] = pyarrow.FixedSizeListArray.from_arrays(flat, table.width)
    content = pyarrow.table(values)
    write_file(to, lambda file: parquet.write_table(content, file, use_dictionary=["label"]))


def _read(images: str | Path | Sequence[str | Path]) -> Samples:
    """List the images, each of them once, by absolute paths."""
    if isinstance(images, str | Path):
        if is_table(images):
            raise UserError(f"{images} holds embeddings already: name images.")
        samples = read_images(images)
    else:
        require(len(images) > 0, "images", [], "one image or more")
        samples = Samples(tuple(map(Path, images)))
    paths = [os.path.abspath(path) for path in samples.paths]
    first = {path: i for i, path in reversed(list(enumerate(paths)))}
    if more := len(paths) - len(first):
        logger.info("%d images are listed more than once: each is embedded once.", more)
    samples = samples.keep(np.array(sorted(first.values())), ())
    absolute = tuple(Path(os.path.abspath(path)) for path in samples.paths)
    return Samples(absolute, samples.labels, samples.classes, samples.skipped)


def _embed_samples(
    samples: Samples, config: RunConfig, device: torch.device, progress: Progress
) -> Domain:
    """Embed images; the processes of a launcher share them."""
    backbone = make_backbone(config)  # before the images: a missing file is found at once
    with distributed.main_process_first():
        reading = progress.task("reading")
        domain = load_domains(config, device, {"images": samples}, lambda name: reading)["images"]
    show = with_speed(progress.task("embedding"), "images")
    if distributed.world_size() > 1:
        embed_shard(domain, backbone, config, show)
        distributed.barrier()
        show = ignore
    with distributed.main_process_first():
        return embed_domain(domain, backbone, (), config, show)


def _to_table(domain: Domain) -> EmbeddingTable:
    samples, labels = domain.samples, None
    parts = torch.split(torch.arange(len(samples)), 4096)
    rows = np.concatenate([domain.pixels.get(part)[:, 0].cpu().numpy() for part in parts])
    if samples.labels is not None:
        labels = tuple(samples.classes[k] for k in samples.labels)
    return EmbeddingTable(tuple(map(str, samples.paths)), rows, labels)


@contextlib.contextmanager
def _claimed(to: Path, force: bool, images: str | Path | Sequence[str | Path]) -> Iterator[None]:
    """Hold a file to be written while the block runs: of two that write it, one goes on.

    Args:
        to: the file.
        force: write over it.
        images: what is embedded, which is never written over.
    """
    require(
        to.suffix.lower() in SUFFIXES, "to", str(to), f"a file ending in {' or '.join(SUFFIXES)}"
    )
    if to.suffix.lower() == ".parquet":
        import_parquet()
    if not distributed.is_main_process():
        yield
        return
    files = [to, paths_file(to)] if to.suffix.lower() == ".npy" else [to]
    for one in files:
        require_writable(one)
        if isinstance(images, str | Path) and os.path.realpath(one) == os.path.realpath(images):
            raise UserError(f"{one} would be written over {images}, the images: name another file.")
    lock = to.with_name(f".{to.name}.lock")
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(held(lock, remove=True))
            if file is None:
                raise UserError(f"{to} is being written by {read_holder(lock)}: wait for its end.")
            write_holder(file)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise UserError(f"{to} cannot be written: {error.strerror}.") from None
            logger.warning("%s cannot be locked: let nothing else write it.", to)
        for one in files:
            if one.exists() and not force:
                raise UserError(f"{one} is there already: name another file, or add --force.")
        yield
