"""The README's picture: SAN's unknown scores on Office-Home Clipart → Real World, by truth.

    python benchmarks/picture.py

Reads the scores of the end-to-end run with seed 0, taken from its scores.npz on the device, and
writes docs/unknown-scores.svg. The truth colours the picture; neither threshold has seen it.
"""

import csv
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from unida.decision.rejection import mixture

HERE = Path(__file__).parent
SCORES = HERE / "office_home" / "unda_stored" / "scores-clipart-real_world-san-0.csv"
PICTURE = HERE.parent / "docs" / "unknown-scores.svg"


def main() -> None:
    with SCORES.open(newline="") as file:
        rows = list(csv.DictReader(file))
    scores = np.array([float(row["unknown_score"]) for row in rows])
    known = np.array([row["shared"] == "1" for row in rows])

    plt.rcParams.update({"svg.hashsalt": "unida", "font.size": 11})
    figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
    bins = np.linspace(scores.min(), scores.max(), 60)
    for part, colour, name in ((known, "#0072B2", "shared"), (~known, "#E69F00", "never named")):
        label = f"{name} classes ({part.sum()} images)"
        axes.hist(scores[part], bins, color=colour, alpha=0.75, density=True, label=label)
    for threshold, style, name in (
        (0.0, ":", "as many as the largest output accepts (own)"),
        (mixture(scores).threshold, "--", "two groups, fitted without labels (mixture)"),
    ):
        axes.axvline(threshold, color="black", linestyle=style, label=name)
    axes.set_xlabel("unknown score: the less an image is like a class's surest ones, the higher")
    axes.set_ylabel("density")
    axes.set_title("SAN, Office-Home Clipart → Real World: known and unknown, told apart")
    axes.legend(frameon=False, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
