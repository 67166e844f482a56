"""Where the images of a run lie: their features in few dimensions, for maps and categories.

Written beside the model as `atlas.npz`: all target images in the order of predictions.csv, and a
sample of the source. Both are in the same directions, those in which the images differ most.
"""

import zipfile
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.decomposition import PCA

from unida.errors import UserError
from unida.training.run_folder import write_file
from unida.types import FloatArray, IntArray
from unida.utils.chunking import MAX_SAMPLES, subsample

DIMENSIONS = 64
MOST_OF_SOURCE = 2000
MOST_IMAGES = 200_000
"""Of more target images, no atlas is made: features of all of them would fill the memory."""

Features = npt.NDArray[np.float32]


@dataclass(frozen=True)
class FeatureStore:
    """Images of both domains in the same few dimensions.

    Attributes:
        features: of the target, (N, at most 64).
        best: the most likely known class of each target image, also of those called unknown.
        source_features: of a sample of the source.
        source_labels: their classes.
        source_paths: their files.
    """

    features: Features
    best: IntArray
    source_features: Features
    source_labels: IntArray
    source_paths: npt.NDArray[np.str_]

    def save(self, path: Path) -> None:
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        write_file(path, lambda file: np.savez_compressed(file, **content))


def build_feature_store(
    features: Features,
    probs: FloatArray,
    source_features: Features,
    source_labels: IntArray,
    source_paths: tuple[Path, ...],
) -> FeatureStore:
    """Finds the directions on a sample of both domains and turns all images into them."""
    both = np.concatenate([features, source_features])
    looked = both[subsample(len(both), MAX_SAMPLES, 0, "atlas")]
    few = min(DIMENSIONS, *looked.shape)
    pca = PCA(few, svd_solver="randomized", random_state=0).fit(looked)
    reduced = pca.transform(both).astype(np.float32)
    return FeatureStore(
        features=reduced[: len(features)],
        best=probs.argmax(1),
        source_features=reduced[len(features) :],
        source_labels=source_labels,
        source_paths=np.array([str(path) for path in source_paths], dtype=np.str_),
    )


def read_feature_store(path: Path) -> FeatureStore:
    """Reads `atlas.npz`; anything else is refused in one sentence."""
    try:
        with np.load(path) as content:
            return FeatureStore(
                **{field.name: content[field.name] for field in fields(FeatureStore)}
            )
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path} does not hold the features of a finished run ({type(error).__name__}): "
            "train again with this version."
        ) from None
