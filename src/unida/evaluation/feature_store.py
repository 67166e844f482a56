"""Features of a run's images in few dimensions, kept for maps and category discovery.

Written beside the model as `features.npz`: all target images in the order of `predictions.csv`,
and a sample of the source, projected onto the principal components of both.
"""

import zipfile
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from unida.errors import UserError
from unida.ops.pca import joint_pca
from unida.training.run_folder import write_file
from unida.types import Features, FloatArray, IntArray
from unida.utils.files import open_regular

DIMENSIONS = 64
MOST_OF_SOURCE = 2000
_MOST_BYTES = 2**30
MOST_IMAGES = 200_000
"""With more target images no features are kept: those of all images would fill the memory."""


@dataclass(frozen=True)
class FeatureStore:
    """Images of both domains in the same few dimensions.

    Attributes:
        features: (N, at most 64), of the target.
        best: (N,), most likely known class of each target image, also of rejected ones.
        source_features: (M, at most 64), of a sample of the source.
        source_labels: (M,), their classes.
        source_paths: (M,), their files.
        backbone: (N, at most 96), principal components of the backbone's features, of the target;
            None in files of earlier versions.
        source_backbone: the same components of the source, (M, at most 96).
    """

    features: Features
    best: IntArray
    source_features: Features
    source_labels: IntArray
    source_paths: npt.NDArray[np.str_]
    backbone: Features | None = None
    source_backbone: Features | None = None

    def save(self, path: Path) -> None:
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        content = {name: array for name, array in arrays.items() if array is not None}
        write_file(path, lambda file: np.savez_compressed(file, **content))


def build_feature_store(
    features: Features,
    probs: FloatArray,
    source_features: Features,
    source_labels: IntArray,
    source_paths: tuple[Path, ...],
    backbone: tuple[Features, Features] | None = None,
) -> FeatureStore:
    """Project the features of both domains onto their common principal components.

    Args:
        features: of the method, of the target.
        probs: of the known classes, of the target.
        source_features: of the method.
        source_labels: classes of the source images.
        source_paths: their files.
        backbone: components of the backbone's features, of target and source.
    """
    target, source = joint_pca([features, source_features], DIMENSIONS)
    paths = np.array([str(path) for path in source_paths], dtype=np.str_)
    both = backbone or (None, None)
    return FeatureStore(target, probs.argmax(1), source, source_labels, paths, *both)


def read_feature_store(path: Path) -> FeatureStore:
    """Read `features.npz`, or `atlas.npz` of an earlier version."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            n_bytes = sum(part.file_size for part in archive.infolist())
        if n_bytes > _MOST_BYTES:
            raise ValueError(f"{n_bytes} bytes")
        with np.load(path) as content:
            absent = {"backbone", "source_backbone"} - {*content}
            names = {field.name for field in fields(FeatureStore)} - absent
            store = FeatureStore(**{name: content[name] for name in names})
        _check(store)
        return store
    except Exception as error:  # a damaged archive raises nearly any type
        raise UserError(
            f"{path} does not hold the features of a finished run ({type(error).__name__}): "
            "train again with this version."
        ) from None


def _check(store: FeatureStore) -> None:
    """Raise a `ValueError` unless the arrays fit each other."""
    features, source = store.features, store.source_features
    n, m = len(features), len(source)
    lengths = (store.best.shape, store.source_labels.shape, store.source_paths.shape)
    fits = features.ndim == source.ndim == 2 and features.shape[1] == source.shape[1]
    kinds = "".join(array.dtype.kind for array in vars(store).values() if array is not None)
    if not fits or lengths != ((n,), (m,), (m,)) or kinds[:5] != "fifiU":
        raise ValueError("arrays that do not fit each other")
    y, of_source = store.backbone, store.source_backbone
    if y is None or of_source is None:
        fits = y is None and of_source is None
    else:
        fits = y.ndim == of_source.ndim == 2 and y.shape[1] == of_source.shape[1]
        fits &= (len(y), len(of_source), kinds[5:]) == (n, m, "ff")
    if not fits:
        raise ValueError("arrays that do not fit each other")
