"""Arrays of a run that its figures are drawn from: scores.npz.

A run has a file for the method alone and, where its predictions were refined, a second one.
"""

import zipfile
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from unida.bench.results import ALONE
from unida.errors import UserError
from unida.training.run_folder import write_file
from unida.types import FloatArray, IntArray


@dataclass(frozen=True)
class Arrays:
    """Outputs of a run for its images, and their true classes.

    Attributes:
        labels: true classes of the target, the number of known classes for unknown.
        true_class: their names, those of unknown classes too.
        best: most likely known classes.
        confidence: probability of that class.
        unknown_score: higher for images that are more likely of an unknown class.
        features: of the target, reduced by PCA.
        source_labels: classes of a sample of the source.
        source_features: their features, in the same PCA space.
        backbone: features of the backbone, of the target, reduced by PCA; None where it was not
            trained, and in runs of earlier versions.
        source_backbone: the same of the sample of the source.
    """

    labels: IntArray
    true_class: npt.NDArray[np.str_]
    best: IntArray
    confidence: FloatArray
    unknown_score: FloatArray
    features: npt.NDArray[np.float32]
    source_labels: IntArray
    source_features: npt.NDArray[np.float32]
    backbone: npt.NDArray[np.float32] | None = None
    source_backbone: npt.NDArray[np.float32] | None = None

    def save(self, path: Path) -> None:
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        content = {name: array for name, array in found.items() if array is not None}
        write_file(path, lambda file: np.savez_compressed(file, **content))


def scores_file(folder: Path, refine: str = ALONE) -> Path:
    """Return the file of a run folder for the method alone or for the refined predictions."""
    return folder / ("scores.npz" if refine == ALONE else "scores-refined.npz")


def read_arrays(folder: Path, refine: str = ALONE) -> Arrays:
    """Read the arrays of a run folder; anything else is refused in one sentence."""
    file = scores_file(folder, refine)
    if not file.exists():
        file = scores_file(folder)  # a run of results format 1 has only one file
    try:
        with np.load(file) as content:
            optional = {"backbone", "source_backbone"} - {*content}
            names = {field.name for field in fields(Arrays)} - optional
            arrays = Arrays(**{name: content[name] for name in names})
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{file} does not hold the scores of a run ({error!r}).") from None
    of_target = (arrays.labels, arrays.true_class, arrays.best, arrays.unknown_score)
    n_target, n_source = len(arrays.features), len(arrays.source_features)
    lengths = {len(a) for a in (*of_target, arrays.backbone) if a is not None}
    of_source = (arrays.source_labels, arrays.source_backbone)
    if lengths != {n_target} or {len(a) for a in of_source if a is not None} != {n_source}:
        raise UserError(f"{file} holds arrays of different lengths.")
    return arrays
