"""A run of seven images that exist nowhere: names are compared, never opened."""

from pathlib import Path

import numpy as np

from unida.exchange.records import RunRecords
from unida.training.run_folder import RunFolder
from unida.types import Prediction

CLASSES = ["cat", "dog & 'bone'", "a/b"]
PATHS = [
    "/images/one/1.png",
    "/images/two/1.png",
    "/images/two/zwölf & 13.png",
    "/images/two/-x.jpg",
    "/images/three/1.2.png",
    "/images/three/a b.png",
    "/images/three/c.png",
]
LABELS = ["cat", "dog & 'bone'", "a/b", "unknown", "unknown", "unknown", "cat"]


def made_records() -> RunRecords:
    """What a finished run with categories and one correction says."""
    n, rng = len(PATHS), np.random.default_rng(0)
    return RunRecords(
        name="first",
        classes=CLASSES,
        paths=PATHS,
        labels=LABELS,
        confidence=np.linspace(0.3, 0.9, n),
        unknown_score=np.array([-1, -0.5, 0, 0.5, 1, np.inf, -2]),
        doubt=np.array([0.1, 0.9, 0.4, 0.3, 0.2, 0.0, 0.8]),
        categories={PATHS[3]: "1", PATHS[4]: "2", PATHS[5]: "1"},
        category_names={"2": "zebra"},
        corrections={PATHS[6]: "okapi"},
        probabilities=rng.dirichlet(np.ones(3), n).astype(np.float32),
        embedding=rng.normal(size=(n, 4)).astype(np.float32),
    )


def write_run(folder: Path, paths: list[str] = PATHS, labels: list[str] = LABELS) -> Path:
    """What a finished run has to be corrected, without the training."""
    run = RunFolder(folder)
    folder.mkdir(parents=True)
    rows = zip(paths, labels, strict=True)
    run.write_predictions(Prediction(Path(path), label, 0.5, 1.0, "own") for path, label in rows)
    run.config.write_text("{}")
    run.finish()
    return folder
