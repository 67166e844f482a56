"""`probabilities.npz`: the class probabilities of a run's target images.

    format           1
    probabilities    (N, K) float32, calibrated: images in the order of predictions.csv, classes in
                     that of the model

They are kept because a loaded model does not give them again: refinement is fitted to the target
images and scores new ones against these.
"""

import zipfile
from pathlib import Path

import numpy as np

from unida.errors import UserError
from unida.training.run_folder import write_file
from unida.types import Features, FloatArray
from unida.utils.files import open_regular

FORMAT = 1
_MOST_BYTES = 2**32


def write_probabilities(path: Path, probs: FloatArray) -> None:
    """Write the calibrated probabilities of all target images."""
    content = probs.astype(np.float32)
    write_file(path, lambda file: np.savez_compressed(file, format=FORMAT, probabilities=content))


def read_probabilities(path: Path, shape: tuple[int, int]) -> Features:
    """Read the probabilities, (N, K), of a run with N target images and K known classes."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            if sum(part.file_size for part in archive.infolist()) > _MOST_BYTES:
                raise ValueError("too large")
        with np.load(path) as content:
            version, probs = int(content["format"]), content["probabilities"]
    except Exception as error:  # a damaged archive raises nearly any type
        raise UserError(
            f"{path} does not hold the probabilities of a run ({type(error).__name__}): remove it "
            "to export without them."
        ) from None
    if version > FORMAT:
        raise UserError(f"{path} has format {version}, of a later version of unida: update unida.")
    if probs.dtype != np.float32 or probs.shape != shape:
        raise UserError(f"{path} is not of this run: remove it to export without probabilities.")
    return np.asarray(probs)
