"""Tables of embeddings: what can be read, and what is refused in one sentence."""

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unida.data.samples import read_images, read_labelled, read_unlabelled
from unida.data.tables import EmbeddingTable, TextPath, as_path, is_table, read_table
from unida.embedding import write_table
from unida.errors import UserError

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)
PATHS = ("a.png", "s3://there/b.png", "=c.png", "sub//d.png")


def parquet(place: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), place)
    return place


def npy(place: Path, rows: Any, csv: str | None = "path\na\nb\nc\nd\n") -> Path:
    np.save(place, rows, allow_pickle=True)
    if csv is not None:
        place.with_suffix(".csv").write_text(csv)
    return place


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
@pytest.mark.parametrize("labels", [None, ("ant", "bee", "ant", "bee")])
def test_what_is_written_is_read(tmp_path: Path, suffix: str, labels: Any) -> None:
    place = tmp_path / f"table{suffix}"
    write_table(EmbeddingTable(PATHS, ROWS, labels), place)
    table = read_table(place)
    assert (table.paths, table.labels) == (PATHS, labels)
    assert table.embeddings.dtype == np.float32
    np.testing.assert_array_equal(table.embeddings, ROWS)
    assert is_table(place)
    assert tuple(map(str, read_unlabelled(place).paths)) == PATHS
    if labels:
        samples = read_labelled(place)
        assert samples.classes == ("ant", "bee")
        assert samples.labels is not None
        assert samples.labels.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", ">f4"])
@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_other_numbers_become_float32(tmp_path: Path, dtype: str, suffix: str) -> None:
    rows = np.asfortranarray(ROWS.astype(dtype))
    if suffix == ".npy":
        place = npy(tmp_path / "x.npy", rows)
    else:
        rows = rows.astype(np.dtype(dtype).newbyteorder("="))
        place = parquet(tmp_path / "x.parquet", path=list("abcd"), embedding=pa.array(list(rows)))
    found = read_table(place).embeddings
    np.testing.assert_array_equal(found, ROWS)
    assert found.dtype == np.float32
    assert found.flags.c_contiguous


def test_a_parquet_file_of_several_row_groups_and_kinds_of_columns(tmp_path: Path) -> None:
    columns = {
        "path": pa.array(range(4)),
        "label": pa.array(["x", None, "y", "x"]).dictionary_encode(),
        "embedding": pa.array(ROWS.tolist(), pa.large_list(pa.float64())),
        "more": pa.array([None] * 4),
    }
    place = tmp_path / "x.PARQUET"
    pq.write_table(pa.table(columns), place, row_group_size=3)
    table = read_table(place)
    assert (table.paths, table.labels) == (("0", "1", "2", "3"), ("x", "", "y", "x"))
    np.testing.assert_array_equal(table.embeddings, ROWS)
    with pytest.raises(UserError, match="row 2: 1 has no label"):
        read_labelled(place)


def lists(rows: Any, kind: Any = None) -> Callable[[Path], Path]:
    return lambda folder: parquet(
        folder / "x.parquet",
        path=pa.array(list("abcd")[: len(rows)], pa.string()),
        embedding=pa.array(rows, kind),
    )


def array(rows: Any, csv: str | None = "path\na\nb\nc\nd\n") -> Callable[[Path], Path]:
    return lambda folder: npy(folder / "x.npy", rows, csv)


def raw(name: str, content: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        (folder / "x.csv").write_text("path\na\n")
        return folder / name

    return write


def with_value(value: float) -> Any:
    rows = ROWS.astype(np.float64)
    rows[2, 1] = value
    return rows


def archive() -> bytes:
    content = io.BytesIO()
    np.savez(content, a=ROWS)
    return content.getvalue()


FIXED = pa.list_(pa.float32(), 0)
BAD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "unequal": (lists([[1.0], [1.0, 2.0]]), "row 2: the embedding has 2 numbers, those before"),
    "null row": (lists([[1.0], None]), "row 2: the embedding is missing"),
    "null number": (lists([[1.0], [None]]), "not finite .* b, row 2"),
    "no width": (lists([[], []], FIXED), "without a number|cannot be read"),
    "no width in lists": (lists([[], []], pa.list_(pa.float32())), "without a number"),
    "no row": (lists([], pa.list_(pa.float32())), "holds no embedding"),
    "objects": (lists([pickle.dumps(1), b""]), "of type binary; allowed: a list of numbers"),
    "texts": (lists([["1"], ["2"]]), "allowed: a list of numbers"),
    "numbers": (lists([1.0, 2.0]), "of type double; allowed: a list of numbers"),
    "no path": (
        lambda folder: parquet(folder / "x.parquet", embedding=[[1.0]]),
        "no column 'path'; its columns are \\['embedding'\\]",
    ),
    "no embedding": (lambda f: parquet(f / "x.parquet", path=["a"]), "no column 'embedding'"),
    "path of lists": (
        lambda f: parquet(f / "x.parquet", path=[["a"]], embedding=[[1.0]]),
        "'path' of .* is of type list.*; allowed: text",
    ),
    "no parquet": (raw("x.parquet", b"PAR1 not at all"), "not a parquet file"),
    "NaN": (array(with_value(np.nan)), "not finite .* c, row 3"),
    "too large": (array(with_value(1e300)), "not finite .* c, row 3"),
    "array of no width": (array(ROWS[:, :0]), r"shape \(4, 0\)"),
    "one row": (array(ROWS[0]), r"shape \(3,\)"),
    "pictures": (array(np.zeros((4, 2, 2, 3))), r"shape \(4, 2, 2, 3\)"),
    "complex": (array(ROWS + 1j), "type complex64: numbers"),
    "array of texts": (array(ROWS.astype(str)), "numbers are needed"),
    "pickled array": (array(np.array([[1, "a"]] * 4, object)), "pickled objects are not read"),
    "pickle": (raw("x.npy", pickle.dumps([1])), "pickled objects are not read"),
    "archive": (raw("x.npy", archive()), "not an array"),
    "no header": (raw("x.npy", b"\x93NUMPY\x01\x00\x08\x00{'descr'"), "not an array"),
    "cut off": (raw("x.npy", b"\x93NUMPY\x01\x00"), "not an array"),
    "empty": (raw("x.npy", b""), "not an array"),
    "fewer paths": (array(ROWS, "path\na\nb\n"), "4 embeddings, and .*x.csv 2 paths"),
    "no paths": (array(ROWS, None), "needs x.csv beside it"),
    "no column of paths": (array(ROWS, "file\na\nb\nc\nd\n"), "needs the columns path"),
    "twice": (array(ROWS, "path\na\nb\nb\nd\n"), "the path b twice"),
    "empty path": (array(ROWS, "path,label\na,1\nb,1\n,1\nd,1\n"), "row 3: the path is missing"),
    "nowhere": (lambda folder: folder / "x.npy", "is not there"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_table_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    write, message = BAD[name]
    place = write(tmp_path)
    with pytest.raises(UserError, match=message) as caught:
        read_table(place)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return Path.touch, (tmp_path / "harmed",)  # type: ignore[return-value]

    for write in (array(np.array([[Harm()]] * 4, object)), raw("x.npy", pickle.dumps(Harm()))):
        with pytest.raises(UserError, match="pickled"):
            read_table(write(tmp_path))
    assert not (tmp_path / "harmed").exists()


def test_a_path_keeps_its_text() -> None:
    path = as_path("s3://there//x.png")
    assert str(path) == "s3://there//x.png"
    assert str(pickle.loads(pickle.dumps(path))) == str(path)
    assert path.parent.name == "there"
    assert type(as_path("plain.png")) is type(Path("plain.png"))
    assert isinstance(path, TextPath)


def test_labels_are_read_where_every_image_has_one(tmp_path: Path) -> None:
    for name in ("ant/1.png", "bee/2.png"):
        (tmp_path / "in" / name).parent.mkdir(parents=True)
        (tmp_path / "in" / name).write_bytes(b"")
    assert read_images(tmp_path / "in").classes == ("ant", "bee")
    (tmp_path / "in" / "3.png").write_bytes(b"")
    assert read_images(tmp_path / "in").labels is None
    assert len(read_images(tmp_path / "in")) == 3
    (tmp_path / "list.csv").write_text("path,label\na.png,x\nb.png,y\n")
    assert read_images(tmp_path / "list.csv").classes == ("x", "y")
    for text in ("path\na.png\nb.png\n", "path,label\na.png,x\nb.png,\n"):
        (tmp_path / "list.csv").write_text(text)
        assert read_images(tmp_path / "list.csv").labels is None
