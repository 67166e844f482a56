"""Whether a file is whole, and what of a folder must be equal."""

import csv
import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open

APPENDED = ("metrics.jsonl", "journal.log")
"""Files that grow line by line: a kill may cut the last line."""


def check_whole(file: Path) -> None:
    """Read a file to its end; an error of any type if it is not whole."""
    content = file.read_bytes()
    if file.name in APPENDED:
        content = content[: content.rfind(b"\n") + 1]
    if file.suffix == ".json":
        json.loads(content)
    elif file.suffix in (".jsonl", ".log"):
        for line in content.splitlines():
            json.loads(line)
    elif file.suffix == ".csv":
        rows = list(csv.reader(io.StringIO(content.decode("utf-8", "surrogateescape"))))
        assert content.endswith(b"\n")
        assert {len(row) for row in rows} == {len(rows[0])}
    elif file.suffix == ".safetensors":
        with safe_open(file, "np") as tensors:
            assert "unida" in (tensors.metadata() or {})
    elif file.suffix == ".pt":
        torch.load(file, weights_only=True)
    elif file.suffix == ".pt2":
        assert zipfile.ZipFile(file).testzip() is None
    elif file.suffix == ".npz":
        with np.load(file) as arrays:
            for name in arrays:
                arrays[name]
    elif file.suffix == ".html":
        assert content.rstrip().endswith(b"</html>")
    elif file.suffix == ".png":
        assert content.endswith(b"IEND\xaeB`\x82")


def halves(folder: Path) -> list[str]:
    """Files below a folder that are not whole, parts of files left out."""
    found = []
    for path in files_below(folder):
        if path.suffix == ".part" or path.parent.name in ("locks", "logs"):
            continue
        try:
            check_whole(path)
        except Exception as error:  # of any type: it is what the reader of a half file raises
            found.append(f"{path.relative_to(folder)} is not whole: {error!r:.200}")
    return found


def files_below(folder: Path) -> list[Path]:
    return sorted(
        path for root, _, names in os.walk(folder) for path in (Path(root, name) for name in names)
    )
