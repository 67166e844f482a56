"""Embeddings of your own: rows of numbers instead of images.

    python examples/own_embeddings.py OUT [--steps 300]

Any features will do: of a language-image model, a sensor, a table. Here they are digits, scaled
down. Leaves OUT/embeddings.png: the target by its two first principal components, coloured by
label.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from unida import UniversalAdapter
from unida.protocols.digits import SHARED, SOURCE_ONLY, TARGET_ONLY, mnist, uci


def embed(images: np.ndarray) -> np.ndarray:
    """Return a row of 100 numbers for each image: the mean of every 2 × 2 pixels."""
    n, side = len(images), images.shape[1] // 2
    blocks = images.reshape(n, side, 2, side, 2).mean((2, 4))
    return blocks.reshape(n, -1).astype(np.float32)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)

    # Source: labelled rows. Target: rows without labels, some of classes that the source lacks.
    (images, y), (others, truth) = mnist(), uci()
    is_source, is_target = np.isin(y, SHARED + SOURCE_ONLY), np.isin(truth, SHARED + TARGET_ONLY)
    x, y = embed(images[is_source]), y[is_source]
    target, truth = embed(others[is_target]), truth[is_target]

    # The interface of scikit-learn: it can stand in a pipeline, a grid search, a pickle.
    scaler = make_pipeline(StandardScaler(), PCA(50)).fit(np.concatenate([x, target]))
    model = UniversalAdapter("san", steps=args.steps, reject="mixture")
    model.fit(scaler.transform(x), y, target=scaler.transform(target))
    labels = model.predict(scaler.transform(target))
    unknown = labels == model.unknown_label_

    is_new = np.isin(truth, TARGET_ONLY)
    print(f"known rows labelled right: {(labels == truth)[~is_new].mean():.0%}")
    print(f"rows of new classes called unknown: {unknown[is_new].mean():.0%}")

    places = PCA(2).fit_transform(scaler.transform(target))
    figure, axes = plt.subplots(figsize=(6, 5), layout="constrained")
    for label in np.unique(labels):
        rows = labels == label
        name = "unknown" if label == model.unknown_label_ else str(label)
        colour = "black" if name == "unknown" else None
        axes.scatter(*places[rows].T, s=8, label=name, color=colour)
    axes.set_xlabel("first principal component")
    axes.set_ylabel("second")
    axes.legend(title="label", frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(args.out / "embeddings.png", dpi=110)


if __name__ == "__main__":
    main()
