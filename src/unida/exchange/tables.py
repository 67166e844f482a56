"""Tables of predictions: CSV, parquet, cleanlab's arrays and JSON in the manner of COCO."""

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from unida.errors import UserError
from unida.exchange.records import RunRecords
from unida.training.run_folder import write_file, write_lines, write_text
from unida.types import UNKNOWN
from unida.utils.csv_files import csv_lines

COLUMNS = (
    "path",
    "label",
    "confidence",
    "unknown_score",
    "category",
    "category_name",
    "correction",
)


def write_csv(records: RunRecords, to: Path) -> None:
    """Write a row for each image."""
    rows = (
        (path, label, f"{confidence:.6f}", f"{score:.6g}", *_given(records, path))
        for path, label, confidence, score in zip(
            records.paths, records.labels, records.confidence, records.unknown_score, strict=True
        )
    )
    write_lines(to, csv_lines(COLUMNS, rows))


def write_parquet(records: RunRecords, to: Path) -> None:
    """Write the columns of the CSV, `probabilities` and `embedding`.

    The class names, in the order of the probabilities, are in the metadata of the file, where
    pandas finds them as `frame.attrs["classes"]`.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise UserError("Parquet is written with pyarrow: pip install 'unida[parquet]'.")
    import pyarrow
    from pyarrow import parquet

    records.require_text("Parquet")
    given = [tuple(text or None for text in _given(records, path)) for path in records.paths]
    text, number = pyarrow.string(), pyarrow.float64()
    columns = {
        "path": pyarrow.array(records.paths, text),
        "label": pyarrow.array(records.labels, text),
        "confidence": pyarrow.array(records.confidence, number),
        "unknown_score": pyarrow.array(records.unknown_score, number),
    }
    for k, name in enumerate(COLUMNS[4:]):
        columns[name] = pyarrow.array([texts[k] for texts in given], text)
    arrays = {"probabilities": records.probabilities, "embedding": records.embedding}
    for name, array in arrays.items():
        if array is not None:
            flat = pyarrow.array(np.ascontiguousarray(array, np.float32).ravel())
            columns[name] = pyarrow.FixedSizeListArray.from_arrays(flat, array.shape[1])
    about = {"classes": records.classes, "model_version": records.model_version}
    table = pyarrow.table(columns).replace_schema_metadata({"PANDAS_ATTRS": json.dumps(about)})
    write_file(to, lambda file: parquet.write_table(table, file))


def write_cleanlab(records: RunRecords, to: Path) -> None:
    """Write `pred_probs`, `features` and `labels`, with `classes`, `paths` and `corrected`.

    `labels` are numbers of classes: the corrected ones, or else the predicted ones; -1 stands for
    unknown and for a class that the model does not know.
    """
    if records.probabilities is None or records.embedding is None:
        raise UserError(
            f"The run {records.name} has no probabilities.npz or no features.npz, which cleanlab's "
            "arrays are made of: train again with this version."
        )
    number = {name: k for k, name in enumerate(records.classes)}
    arrays: dict[str, Any] = {
        "pred_probs": records.probabilities,
        "features": records.embedding,
        "labels": np.array([number.get(y, -1) for y in records.final_labels], dtype=np.int64),
        "corrected": np.array([path in records.corrections for path in records.paths], dtype=bool),
        "classes": np.array(records.classes, dtype=np.str_),
        "paths": np.array(records.paths, dtype=np.str_),
    }
    write_file(to, lambda file: np.savez_compressed(file, **arrays))


def write_coco(records: RunRecords, to: Path) -> None:
    """Write images, categories and an annotation for each image, without boxes.

    The novel categories come after the labels, as `unknown/ID` of the supercategory `unknown`.
    """
    labels = [(name, UNKNOWN if name == UNKNOWN else "known") for name in records.all_labels]
    novel = sorted({k for k in records.final_categories if k}, key=int)
    labels += [(f"{UNKNOWN}/{k}", UNKNOWN) for k in novel]
    number = {name: k for k, (name, _) in enumerate(labels, 1)}
    annotations = []
    final = zip(records.final_labels, records.final_categories, strict=True)
    for i, (label, category) in enumerate(final):
        name = f"{UNKNOWN}/{category}" if category else label
        about = {"confidence": records.confidence[i], "unknown_score": records.unknown_score[i]}
        corrected = {"corrected": records.paths[i] in records.corrections}
        numbers = {"id": i + 1, "image_id": i + 1, "category_id": number[name]}
        annotations.append(numbers | {k: finite(v) for k, v in about.items()} | corrected)
    content = {
        "info": {"description": records.model_version},
        "images": [{"id": i, "file_name": path} for i, path in enumerate(records.paths, 1)],
        "annotations": annotations,
        "categories": [
            {"id": k, "name": name, "supercategory": above}
            for k, (name, above) in enumerate(labels, 1)
        ],
    }
    write_json(to, content)


def write_json(to: Path, content: Any) -> None:
    """Write JSON in ASCII: file names that are not valid UTF-8 come back as they were."""
    write_text(to, json.dumps(content, indent=1, allow_nan=False) + "\n")


def finite(number: float) -> float | None:
    """Return the number, or None where JSON has none for it."""
    return round(float(number), 6) if math.isfinite(number) else None


def _given(records: RunRecords, path: str) -> tuple[str, str, str]:
    """Return the category of an image, its name, and the correction; empty for none."""
    category = records.categories.get(path, "")
    name = records.category_names.get(category, "")
    return category, name, records.corrections.get(path, "")
