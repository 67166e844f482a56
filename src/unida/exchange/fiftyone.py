"""The files of FiftyOne's `FiftyOneImageClassificationDataset`.

labels.json    {"classes": […], "labels": {key: label or number or {"label": …}}}; a key is the
               file of an image, or its name in data/ without the extension
data/          images that were exported too
"""

import os
from pathlib import Path
from typing import Any

from unida.errors import UserError
from unida.exchange.records import RunRecords
from unida.exchange.tables import finite, write_json
from unida.exchange.trees import new_folder

LABELS = "labels.json"


def write_fiftyone(records: RunRecords, to: Path, force: bool = False) -> None:
    """Write a folder that `fiftyone.Dataset.from_dir` reads; images stay where they are.

    A label is the corrected one, or else the predicted one with its confidence and attributes.
    """
    records.require_text("FiftyOne")
    labels = {}
    for i, path in enumerate(records.paths):
        category = records.categories.get(path)
        attributes = {
            "predicted": records.labels[i],
            "unknown_score": finite(records.unknown_score[i]),
            "doubt": finite(records.doubt[i]),
            "category": category,
            "category_name": records.category_names.get(category or ""),
            "corrected": path in records.corrections,
        }
        labels[os.path.abspath(path)] = {
            "label": records.final_labels[i],
            "confidence": finite(records.confidence[i]),
            "attributes": {name: v for name, v in attributes.items() if v is not None},
        }
    with new_folder(to, force) as folder:
        # Without classes the labels are texts; with them they would be numbers.
        write_json(folder / LABELS, {"classes": None, "labels": labels})
        (folder / "data").mkdir()  # FiftyOne wants it, although it holds nothing


def labels_of_fiftyone(content: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the name of each image and its label; images without a label are left out.

    Args:
        content: of labels.json.
    """
    classes, labels = content.get("classes"), content.get("labels")
    if not isinstance(labels, dict) or not isinstance(classes, list | None):
        raise UserError("FiftyOne's labels.json has 'labels', an object, and perhaps 'classes'.")
    found = []
    for name, target in labels.items():
        label = target.get("label") if isinstance(target, dict) else target
        if type(label) is int and classes and 0 <= label < len(classes):
            label = classes[label]
        if isinstance(label, str):
            found.append((name, label))
        elif target is not None:
            raise UserError(f"{name!r} has no label that is a name or the number of a class.")
    return found
