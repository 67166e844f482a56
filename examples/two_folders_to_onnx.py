"""From two folders to an ONNX file that labels images without unida.

    python examples/two_folders_to_onnx.py OUT [--steps 400]

Writes digits as two folders, adapts, exports, labels images with onnxruntime alone, and leaves
OUT/labels.png: some images of every label.
"""

import argparse
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

import unida
from unida.export import export_model
from unida.protocols.digits import write_digits

TILE, COLUMNS = 40, 12


def contact_sheet(by_label: dict[str, list[Path]], out: Path) -> None:
    """Draw a row of images for every label, in the order of the labels."""
    sheet = Image.new("L", (TILE * COLUMNS, TILE * len(by_label)), 255)
    for row, label in enumerate(sorted(by_label)):
        for column, path in enumerate(by_label[label][:COLUMNS]):
            tile = Image.open(path).convert("L").resize((TILE, TILE))
            sheet.paste(tile, (column * TILE, row * TILE))
    sheet.save(out)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args(argv)

    # 1. Two folders: source/CLASS/….png with labels, target/….png without.
    places = write_digits(args.out / "data")
    source, target = places["mnist"][0], places["uci"][1]

    # 2. Adapt. For photographs leave out the options of the last line, or take frozen=True.
    model = unida.adapt(
        source, target, args.out / "run", steps=args.steps, reject="mixture",
        backbone="small_cnn", image_size=16, batch=48, lr=0.05, flip=False,
    )  # fmt: skip

    # 3. A label for every image.
    predictions = list(model.predict([target]))
    by_label: dict[str, list[Path]] = {}
    for p in predictions:
        by_label.setdefault(p.label, []).append(Path(str(p.path)))
    contact_sheet(by_label, args.out / "labels.png")
    print({label: len(paths) for label, paths in sorted(by_label.items())})

    # 4. One file for production; from here on only onnxruntime, numpy and Pillow are used.
    file = args.out / "digits.onnx"
    export_model(model, file, "onnx")
    session = onnxruntime.InferenceSession(str(file))
    size = int(session.get_modelmeta().custom_metadata_map["size"])
    images = [
        np.asarray(Image.open(str(p.path)).convert("RGB").resize((size, size), Image.BILINEAR))
        for p in predictions[:200]
    ]
    numbers = session.run(["label"], {"images": np.stack(images)})[0]
    names = [*model.classes, "unknown"]
    same = [names[n] == p.label for n, p in zip(numbers, predictions, strict=False)]
    print(f"{file}: the same label for {sum(same)} of {len(same)} images")


if __name__ == "__main__":
    main()
