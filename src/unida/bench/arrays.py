"""scores.npz of a run: what its figures are drawn from."""

import zipfile
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from unida.errors import UserError
from unida.training.run_folder import write_file
from unida.types import FloatArray, IntArray


@dataclass(frozen=True)
class Arrays:
    """What a run said of its images, and the truth.

    Attributes:
        labels: true classes of the target, the number of known classes for unknown.
        true_class: their names, those of unknown classes too.
        best: most likely known classes.
        confidence: probability of that class.
        unknown_score: how unknown each image seems.
        features: of the target, in few dimensions.
        source_labels: classes of a sample of the source.
        source_features: their features, in the same dimensions.
    """

    labels: IntArray
    true_class: npt.NDArray[np.str_]
    best: IntArray
    confidence: FloatArray
    unknown_score: FloatArray
    features: npt.NDArray[np.float32]
    source_labels: IntArray
    source_features: npt.NDArray[np.float32]

    def save(self, path: Path) -> None:
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        write_file(path, lambda file: np.savez_compressed(file, **content))


def read_arrays(folder: Path) -> Arrays:
    """Reads scores.npz of a run folder; anything else is refused in one sentence."""
    file = folder / "scores.npz"
    try:
        with np.load(file) as content:
            arrays = Arrays(**{field.name: content[field.name] for field in fields(Arrays)})
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{file} does not hold the scores of a run ({error!r}).") from None
    of_target = (arrays.labels, arrays.true_class, arrays.best, arrays.unknown_score)
    target, source = len(arrays.features), len(arrays.source_features)
    if {len(a) for a in of_target} != {target} or len(arrays.source_labels) != source:
        raise UserError(f"{file} holds arrays of different lengths.")
    return arrays
