"""The README's picture: SAN's unknown scores on Office-Home Clipart → Real World, by truth.

    python benchmarks/scripts/picture.py

Reads the scores of the end-to-end run with seed 0, taken from its scores.npz on the device, and
writes docs/unknown-scores.svg. True classes colour the picture; neither threshold uses them.
"""

import csv
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from unida.decision.rejection import TargetOutputs, mixture

ROOT = Path(__file__).parents[2]
RUN = ROOT / "benchmarks" / "office_home" / "unda_stored"
SCORES = RUN / "scores-clipart-real_world-san-0.csv"
PICTURE = ROOT / "docs" / "unknown-scores.svg"


def main() -> None:
    with SCORES.open(newline="") as file:
        rows = list(csv.DictReader(file))
    scores = np.array([float(row["unknown_score"]) for row in rows])
    known = np.array([row["shared"] == "1" for row in rows])

    plt.rcParams.update({"svg.hashsalt": "unida", "font.size": 11})
    figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
    bins = np.linspace(scores.min(), scores.max(), 60)
    for part, colour, name in ((known, "#0072B2", "shared"), (~known, "#E69F00", "unknown")):
        label = f"{name} classes ({part.sum()} images)"
        axes.hist(scores[part], bins, color=colour, alpha=0.75, density=True, label=label)
    crossing = mixture(TargetOutputs(scores)).threshold
    for threshold, style, name in (
        (0.0, ":", "the method's own rule (own)"),
        (crossing, "--", "mixture model, fitted without labels (mixture)"),
    ):
        axes.axvline(threshold, color="black", linestyle=style, label=name)
    axes.set_xlabel("unknown score")
    axes.set_ylabel("density")
    axes.set_title("SAN + refinement, Office-Home Clipart → Real World")
    axes.legend(frameon=False, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
