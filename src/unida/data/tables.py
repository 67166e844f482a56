"""Tables of embeddings: a row an image, with its path and perhaps its label.

    NAME.parquet    columns path, embedding and perhaps label
    NAME.npy        the embeddings (N, D); NAME.csv beside it has the column path and perhaps label

Nothing in a table is unpickled.
"""

import importlib
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from unida.errors import UserError
from unida.utils.csv_files import read_csv

SUFFIXES = (".npy", ".parquet")
COLUMNS = ("path", "label", "embedding")
_ROWS = 2**14  # of a parquet file at a time


@dataclass(frozen=True, eq=False)
class EmbeddingTable:
    """Embeddings of images.

    Attributes:
        paths: one an image, as text, all different.
        embeddings: (N, D), float32.
        labels: one an image, empty where it has none; None where no image has one.
    """

    paths: tuple[str, ...]
    embeddings: npt.NDArray[np.float32]
    labels: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def width(self) -> int:
        """Numbers in an embedding."""
        return int(self.embeddings.shape[1])


_SystemPath: Any = type(Path())


class TextPath(_SystemPath):  # type: ignore[misc]
    """A path that is written as it was given; a plain one makes `s3:/a` of `s3://a`."""

    text: str

    def __new__(cls, text: str) -> Self:
        path: Self = super().__new__(cls, text)
        path.text = text
        return path

    def __str__(self) -> str:
        return getattr(self, "text", None) or str(super().__str__())

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return TextPath, (str(self),)


def as_path(text: str) -> Path:
    """Return a path whose text is the given one."""
    path = Path(text)
    return path if str(path) == text else TextPath(text)


def is_table(place: str | Path) -> bool:
    """Return whether a place is a table of embeddings, by its name."""
    return Path(place).suffix.lower() in SUFFIXES and not os.path.isdir(place)


def paths_file(place: Path) -> Path:
    """Return the file with the paths of the embeddings in a .npy file."""
    return place.with_suffix(".csv")


def read_table(place: str | Path) -> EmbeddingTable:
    """Read and check a table.

    Raises:
        UserError: a column is missing, a path is missing or there twice, or the embeddings are no
            finite numbers, at least one of them for each image.
    """
    place = Path(place)
    paths, labels = read_columns(place)
    rows = _read_npy(place) if place.suffix.lower() == ".npy" else _read_lists(place, len(paths))
    if len(rows) != len(paths):
        raise UserError(
            f"{place} has {len(rows)} embeddings, and {paths_file(place)} {len(paths)} paths: one "
            "path an embedding is needed."
        )
    finite = np.isfinite(rows).all(1)
    if not finite.all():
        first = int(finite.argmin())
        raise UserError(
            f"{place} has a number that is not finite (NaN or infinite, as float32) in the "
            f"embedding of {paths[first]}, row {first + 1}."
        )
    return EmbeddingTable(paths, rows, labels)


def read_columns(place: Path) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Read paths and labels of a table."""
    if not place.is_file():
        raise UserError(f"{place} is {'not a regular file' if place.exists() else 'not there'}.")
    if place.suffix.lower() == ".npy":
        paths, labels = _read_paths_file(place)
    else:
        paths, labels = _read_texts(place)
    if not paths:
        raise UserError(f"{place} holds no embedding.")
    if "" in paths:
        raise UserError(f"{place}, row {paths.index('') + 1}: the path is missing.")
    seen = set[str]()
    for path in paths:
        if path in seen:
            raise UserError(
                f"{place} has the path {path} twice: every image needs a path of its own."
            )
        seen.add(path)
    has_labels = labels is not None and any(labels)
    return tuple(paths), tuple(labels) if labels and has_labels else None


# NumPy: an array, and a CSV beside it.


def _read_paths_file(place: Path) -> tuple[list[str], list[str] | None]:
    beside = paths_file(place)
    if not beside.is_file():
        raise UserError(
            f"{place} needs {beside.name} beside it: a column path, for a source a column label, "
            "and a row for each embedding."
        )
    rows = read_csv(beside, ("path",), optional=("label",))
    labels = [row["label"].strip() for row in rows] if rows and "label" in rows[0] else None
    return [row["path"] for row in rows], labels


def _read_npy(place: Path) -> npt.NDArray[np.float32]:
    try:
        array: Any = np.load(place, mmap_mode="r", allow_pickle=False)
        shape = tuple(map(int, array.shape))
    except Exception as error:  # NumPy raises many types, and its sentences advise to unpickle
        reason = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
        raise UserError(
            f"{place} is not an array of numbers as numpy.save writes it{reason}; pickled objects "
            "are not read."
        ) from None
    if len(shape) != 2 or shape[1] == 0:
        raise UserError(
            f"{place} has the shape {shape}: (N, D) is needed, D numbers for each of N images."
        )
    if array.dtype.kind not in "fiu":
        raise UserError(f"{place} holds values of type {array.dtype}: numbers are needed.")
    return _as_float32(array)


def _as_float32(array: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore"):  # it is infinite then, which is refused
        return np.array(array, np.float32, order="C")


# Parquet.


def import_parquet() -> ModuleType:
    """Import `pyarrow.parquet`, or say what is missing."""
    if importlib.util.find_spec("pyarrow") is None:
        raise UserError(
            "Parquet files are read and written with pyarrow: pip install 'unida[parquet]', or "
            "use .npy."
        )
    return importlib.import_module("pyarrow.parquet")


def _open_parquet(place: Path, *columns: str) -> Any:
    try:
        file = import_parquet().ParquetFile(place)
    except UserError:
        raise
    except Exception as error:  # pyarrow raises many types
        raise UserError(f"{place} is not a parquet file ({_first_line(error)}).") from None
    for column in columns:
        if (names := file.schema_arrow.names).count(column) != 1:
            raise UserError(
                f"{place} has {'several columns' if column in names else 'no column'} {column!r}; "
                f"its columns are {names}."
            )
    return file


def _columns(place: Path, file: Any, names: list[str]) -> Iterator[list[Any]]:
    """Yield the columns of a parquet file, some rows at a time, as arrow arrays."""
    try:
        for batch in file.iter_batches(_ROWS, columns=names):
            yield [batch.column(name) for name in names]
    except Exception as error:  # damaged pages
        raise UserError(f"{place} cannot be read ({_first_line(error)}).") from None


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")[:200]


def _read_texts(place: Path) -> tuple[list[str], list[str] | None]:
    file = _open_parquet(place, "path", "embedding")
    names = ["path", "label"] if "label" in file.schema_arrow.names else ["path"]
    for name in names:
        _check_text(place, name, file.schema_arrow.field(name).type)
    columns: list[list[str]] = [[] for _ in names]
    for batch in _columns(place, file, names):
        for column, array in zip(columns, batch, strict=True):
            column += ["" if value is None else str(value) for value in array.to_pylist()]
    labels = [label.strip() for label in columns[1]] if len(columns) > 1 else None
    return columns[0], labels


def _check_text(place: Path, name: str, kind: Any) -> None:
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    if not (is_text or types.is_integer(kind) or (name == "label" and types.is_null(kind))):
        raise UserError(f"Column {name!r} of {place} is of type {kind}; allowed: text.")


def _read_lists(place: Path, n: int) -> npt.NDArray[np.float32]:
    file = _open_parquet(place, "embedding")
    _check_lists(place, file.schema_arrow.field("embedding").type)
    rows: npt.NDArray[np.float32] | None = None
    done = 0
    for (array,) in _columns(place, file, ["embedding"]):
        block = _block(place, array, done, None if rows is None else rows.shape[1])
        if rows is None:
            rows = np.empty((n, block.shape[1]), np.float32)
        rows[done : done + len(block)] = block
        done += len(block)
    assert rows is not None
    assert done == n, "paths and embeddings are columns of one file"
    return rows


def _check_lists(place: Path, kind: Any) -> None:
    from pyarrow import types

    kind = getattr(kind, "storage_type", kind)  # of an extension, such as a tensor
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    inner = kind.value_type if any(is_list(kind) for is_list in lists) else None
    if inner is None or not (types.is_floating(inner) or types.is_integer(inner)):
        raise UserError(
            f"Column 'embedding' of {place} is of type {kind}; allowed: a list of numbers in each "
            "row."
        )


def _block(place: Path, array: Any, first: int, width: int | None) -> npt.NDArray[np.float32]:
    """Return the embeddings of some rows.

    Args:
        place: the file.
        array: an arrow array of lists.
        first: number of the first row.
        width: of the rows before; None where there are none.
    """
    import pyarrow.compute

    array = getattr(array, "storage", array)
    if array.null_count:
        row = first + array.is_null().index(True).as_py() + 1
        raise UserError(f"{place}, row {row}: the embedding is missing.")
    widths = pyarrow.compute.list_value_length(array).to_numpy(zero_copy_only=False)
    width = int(widths[0]) if width is None else width
    if (other := np.flatnonzero(widths != width)).size:
        row = int(other[0])
        raise UserError(
            f"{place}, row {first + row + 1}: the embedding has {widths[row]} numbers, those "
            f"before it {width}."
        )
    if width == 0:
        raise UserError(f"{place} has embeddings without a number in them.")
    values = array.flatten().to_numpy(zero_copy_only=False)  # null is NaN
    return _as_float32(values).reshape(-1, width)


def require_unicode(paths: tuple[str, ...], to: Path) -> None:
    """Refuse file names that no parquet file can hold."""
    for path in paths:
        try:
            path.encode()
        except UnicodeEncodeError:
            shown = os.fsencode(path)
            raise UserError(
                f"The name {shown!r} is not valid UTF-8, as {to} needs it: rename the file, or "
                "write .npy."
            ) from None
