"""The files of FiftyOne's `FiftyOneImageClassificationDataset`.

labels.json    {"classes": […], "labels": {key: label or number or {"label": …}}}
data.json      {key: file}; images that were exported too lie in data/ instead
"""

from pathlib import Path
from typing import Any

from unida.errors import UserError
from unida.exchange.records import RunRecords
from unida.exchange.tables import finite, write_json
from unida.exchange.trees import new_folder

LABELS, FILES = "labels.json", "data.json"


def write_fiftyone(records: RunRecords, to: Path, force: bool = False) -> None:
    """Write a folder that `fiftyone.Dataset.from_dir` reads; images stay where they are.

    A label is the corrected one, or else the predicted one with its confidence and attributes.
    """
    records.require_text("FiftyOne")
    width = len(str(len(records)))
    keys = [f"{i:0{width}}" for i in range(1, len(records) + 1)]
    labels = {}
    for i, (key, path) in enumerate(zip(keys, records.paths, strict=True)):
        category = records.categories.get(path)
        attributes = {
            "predicted": records.labels[i],
            "unknown_score": finite(records.unknown_score[i]),
            "doubt": finite(records.doubt[i]),
            "category": category,
            "category_name": records.category_names.get(category or ""),
            "corrected": path in records.corrections,
        }
        labels[key] = {
            "label": records.final_labels[i],
            "confidence": finite(records.confidence[i]),
            "attributes": {name: v for name, v in attributes.items() if v is not None},
        }
    files = {key: str(Path(path).absolute()) for key, path in zip(keys, records.paths, strict=True)}
    with new_folder(to, force) as folder:
        # Without classes the labels are texts; with them they would be numbers.
        write_json(folder / LABELS, {"classes": None, "labels": labels})
        write_json(folder / FILES, files)


def labels_of_fiftyone(content: Any, files: Any) -> list[tuple[str, str]]:
    """Return the name of each image and its label.

    Args:
        content: of labels.json.
        files: of data.json; None without one. Its files are what the names are then.
    """
    classes, labels = content.get("classes"), content.get("labels")
    if not isinstance(labels, dict) or not isinstance(classes, list | None):
        raise UserError("FiftyOne's labels.json has 'labels', an object, and perhaps 'classes'.")
    if not isinstance(files, dict | None):
        raise UserError("FiftyOne's data.json has an object: a file for each key.")
    found = []
    for key, target in labels.items():
        if target is None:  # an image without a label
            continue
        label = target.get("label") if isinstance(target, dict) else target
        if type(label) is int and classes and 0 <= label < len(classes):
            label = classes[label]
        if not isinstance(label, str):
            raise UserError(f"{key!r} has no label that is a name or the number of a class.")
        name = (files or {}).get(key, key)
        if not isinstance(name, str):
            raise UserError(f"FiftyOne's data.json names no file for {key!r}.")
        found.append((name, label))
    return found
