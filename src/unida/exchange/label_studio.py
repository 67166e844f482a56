"""The files of Label Studio: tasks with predictions out, annotations in.

tasks.json    [{"data": {"image": URL, "path": …}, "predictions": [{"result": […], "score": …,
              "model_version": …}]}]
tasks.xml     the labelling configuration: paste it into the project's settings
"""

import os
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any
from urllib.parse import quote

from unida.errors import UserError
from unida.exchange.records import RunRecords
from unida.exchange.tables import finite, write_json
from unida.training.run_folder import write_text

LOCAL_FILES = "/data/local-files/?d="
"""Beginning of the address of a file that Label Studio itself serves."""
DOCUMENT_ROOT = "LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT"
"""Variable of Label Studio: the folder whose files it serves."""
CHOICE, IMAGE = "label", "image"
CHOICES = (CHOICE, "choice")
"""Names of the labelling tag that are read; `choice` is that of Label Studio's own template."""
_NOT_IN_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_label_studio(
    records: RunRecords,
    to: Path,
    first: list[str] | None = None,
    url: str = LOCAL_FILES,
    root: str | Path | None = None,
) -> Path:
    """Write tasks, and the labelling configuration beside them.

    Tasks are sorted by doubt, the most doubtful first; those that a person corrected come last,
    with the label as an annotation. The score of a prediction is 1 - doubt.

    Args:
        records: of the run.
        to: the file of the tasks.
        first: paths of the only images to write, in this order.
        url: beginning of an image's address.
        root: folder that the rest of an address is relative to; by default the folder that all
            images are in. Label Studio needs it as `DOCUMENT_ROOT` to serve local files.

    Returns:
        The folder that addresses are relative to.
    """
    records.require_text("Label Studio")
    folder = Path(os.path.abspath(root)) if root else _common_folder(records.paths)
    row = {path: i for i, path in enumerate(records.paths)}
    by_doubt = sorted(
        range(len(records)),
        key=lambda i: (records.paths[i] in records.corrections, -records.doubt[i]),
    )
    order = by_doubt if first is None else [row[path] for path in first]
    tasks = [_task(records, i, _address(records.paths[i], url, folder)) for i in order]
    config = labelling_config(records.all_labels)
    write_text(to.with_suffix(".xml"), config)
    write_json(to, tasks)
    return folder


def labelling_config(labels: list[str]) -> str:
    """Return the labelling configuration: one choice of these labels for each image."""
    if bad := next((name for name in labels if _NOT_IN_XML.search(name)), None):
        raise UserError(f"The label {bad!r} has a character that XML does not allow: rename it.")
    view = ET.Element("View")
    ET.SubElement(view, "Image", name=IMAGE, value=f"${IMAGE}")
    choices = ET.SubElement(view, "Choices", name=CHOICE, toName=IMAGE, choice="single")
    for name in labels:
        ET.SubElement(choices, "Choice", value=name)
    ET.indent(view)
    return ET.tostring(view, encoding="unicode") + "\n"


def labels_of_tasks(tasks: list[Any]) -> list[tuple[str, str]]:
    """Return the name of each image and its label, of exported JSON or JSON-MIN.

    Tasks without an annotation, and annotations that were cancelled or are empty, are left out.
    """
    found = []
    for number, task in enumerate(tasks, 1):
        if not isinstance(task, dict):
            raise UserError(f"Task {number} of Label Studio is no object.")
        if "annotations" in task or "completions" in task or "data" in task:
            name, labels = _name(task.get("data"), number), _annotated(task, number)
        else:
            name, labels = _name(task, number), _choices(_minimal(task), number)
        found += [(name, label) for label in labels]
    return found


def _task(records: RunRecords, i: int, address: str) -> dict[str, Any]:
    """Return a task: the image, what was predicted, and the correction as an annotation."""
    path = records.paths[i]
    category = records.categories.get(path)
    data = {
        IMAGE: address,
        "path": path,
        "confidence": finite(records.confidence[i]),
        "unknown_score": finite(records.unknown_score[i]),
    }
    if category:
        data |= {"category": category, "category_name": records.category_names.get(category, "")}
    prediction = {
        "model_version": records.model_version,
        "score": finite(1 - records.doubt[i]),
        "result": [_result(records.labels[i])],
    }
    task = {"data": data, "predictions": [prediction]}
    if path in records.corrections:
        task["annotations"] = [{"result": [_result(records.corrections[path])]}]
    return task


def _result(label: str) -> dict[str, Any]:
    value = {"choices": [label]}
    return {"from_name": CHOICE, "to_name": IMAGE, "type": "choices", "value": value}


def _common_folder(paths: list[str]) -> Path:
    """Return the folder that all images are in."""
    try:
        return Path(os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in paths]))
    except ValueError:  # none, or several drives
        raise UserError("The images have no folder in common: name one by --image-root.") from None


def _address(path: str, url: str, folder: Path) -> str:
    below = os.path.relpath(os.path.abspath(path), folder)
    if below.startswith(os.pardir):
        raise UserError(f"{path} is not below {folder}: name another --image-root.")
    return url + quote(Path(below).as_posix())


def _name(data: Any, number: int) -> str:
    """Return the path that unida wrote, or else the address of the image."""
    texts = data if isinstance(data, dict) else {}
    name = texts.get("path") or texts.get(IMAGE)
    if not isinstance(name, str):
        raise UserError(f"Task {number} of Label Studio has no text in 'path' or {IMAGE!r}.")
    return name


def _annotated(task: dict[str, Any], number: int) -> list[str]:
    """Return the labels of all annotations of a task."""
    labels = []
    annotations = task.get("annotations", task.get("completions", []))
    for annotation in annotations if isinstance(annotations, list) else [annotations]:
        if not isinstance(annotation, dict):
            raise UserError(f"Task {number}: its annotations are only numbers: export them too.")
        results = annotation.get("result") or []
        if annotation.get("was_cancelled") or not isinstance(results, list):
            continue
        for result in results:
            if isinstance(result, dict) and result.get("from_name") in CHOICES:
                value = result.get("value")
                labels += _choices(
                    value.get("choices") if isinstance(value, dict) else None, number
                )
    return labels


def _minimal(task: dict[str, Any]) -> Any:
    """Return the label of a task in JSON-MIN: a text, or an object where there are several."""
    label = next((task[key] for key in CHOICES if task.get(key)), None)
    return label.get("choices") if isinstance(label, dict) else label


def _choices(value: Any, number: int) -> list[str]:
    """Return the one choice, or none."""
    choices = [value] if isinstance(value, str) else value or []
    if not isinstance(choices, list) or not all(isinstance(one, str) for one in choices):
        raise UserError(f"Task {number} of Label Studio has a label that is no text.")
    if len(choices) > 1:
        raise UserError(f"Task {number} of Label Studio has several labels: {choices}; keep one.")
    return choices
