"""The README's picture: what a run takes and what it gives, on the demo's digits.

    python benchmarks/scripts/overview.py

Trains SAN as docs/tutorial.md does, with the reject rule `mixture`, and draws docs/overview.png:
labelled source images, unlabelled target images, the labels these got and the groups among the
unknown ones. Images are drawn at random with a fixed seed; what is wrong, by labels the run never
saw, has a red frame. The scores are below the images.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from PIL import Image

import unida
from unida.cli.demo import SETUP
from unida.discovery.discover import discover
from unida.evaluation.evaluate import evaluate
from unida.protocols.digits import TARGET_ONLY, write_digits
from unida.types import Prediction

PICTURE = Path(__file__).parents[2] / "docs" / "overview.png"
COLUMNS, ROWS = 7, 9
RULE = "mixture"
INK, WRONG, UNKNOWN = "#222222", "#D55E00", "#0072B2"
Row = tuple[str, list[str], list[bool]]
"""A name, images, and which of them are wrong."""
EMPTY: Row = ("", [], [])
RIGHT = {str(digit): "unknown" for digit in TARGET_ONLY}


def truth(path: str) -> str:
    """Return the label that an image should get."""
    name = Path(path).parent.name
    return RIGHT.get(name, name)


def show(axes: Axes, path: str | None, wrong: bool = False) -> None:
    """Draw an image, or nothing, in its axes."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set(visible=wrong, color=WRONG, linewidth=2.5)
    if path is not None:
        axes.imshow(Image.open(path).convert("L"), cmap="gray_r", interpolation="nearest")


def panel(part: SubFigure, title: str, rows: Sequence[Row]) -> None:
    """Draw rows of images with a name in front of each."""
    part.suptitle(title, fontsize=12, color=INK, fontweight="bold")
    grid = part.subplots(ROWS, COLUMNS, squeeze=False)
    for line, (name, paths, wrong) in zip(
        grid, [*rows, *[EMPTY] * (ROWS - len(rows))], strict=True
    ):
        for n, axes in enumerate(line):
            inside = n < len(paths)
            show(axes, paths[n] if inside else None, inside and wrong[n])
        colour = UNKNOWN if name.startswith(("unknown", "group")) else INK
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=11, color=colour)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=PICTURE)
    parser.add_argument("--steps", type=int, default=SETUP["steps"])
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        places, run = write_digits(Path(folder) / "data"), Path(folder) / "run"
        source, target = places["mnist"][0], places["uci"][1]
        model = unida.adapt(source, target, run, reject=RULE, **(SETUP | {"steps": args.steps}))
        predictions = list(model.predict([target]))
        found = evaluate(model, target).scores[RULE]
        text = (
            f"SAN, {args.steps} steps, --reject {RULE}: {found.known:.0%} of the known and "
            f"{found.unknown:.0%} of the unknown digits are right. Frames mark errors."
        )
        draw(source, predictions, discover(run).representatives, text, args.out)


def draw(
    source: Path,
    predictions: Sequence[Prediction],
    groups: list[list[str]],
    text: str,
    out: Path,
) -> None:
    """Draw the four panels and a line of text."""
    rng = np.random.default_rng(0)

    def some(paths: list[str], count: int = COLUMNS) -> list[str]:
        return [paths[i] for i in sorted(rng.permutation(len(paths))[:count])]

    classes = sorted(place.name for place in source.iterdir())
    right = [False] * COLUMNS
    labelled = [
        (name, some(sorted(map(str, (source / name).iterdir()))), right) for name in classes
    ]
    paths = [str(p.path) for p in predictions]
    mixed = some(paths, COLUMNS * ROWS)
    rng.shuffle(mixed)
    unlabelled = [("", mixed[i : i + COLUMNS], right) for i in range(0, len(mixed), COLUMNS)]
    by_label: dict[str, list[str]] = {}
    for p in predictions:
        by_label.setdefault(p.label, []).append(str(p.path))
    found = []
    for name in sorted(by_label):
        shown = some(by_label[name])
        found.append((name, shown, [truth(path) != name for path in shown]))
    grouped = [(f"group {n}", shown[:COLUMNS], right) for n, shown in enumerate(groups[:6], 1)]
    figure = plt.figure(figsize=(14, 4.9), layout="constrained", facecolor="white")
    parts = figure.subfigures(1, 4, wspace=0.03)
    panel(parts[0], "source, with labels", labelled)
    panel(parts[1], "target, without labels", unlabelled)
    panel(parts[2], "unida adapt: a label each", found)
    panel(parts[3], "unida discover: groups of unknown", grouped)
    figure.supxlabel(text, fontsize=11, color=INK)
    figure.savefig(out, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
