"""Labels images with a file of `unida export --format torch`; needs torch and Pillow only."""

import json
import sys

import torch
from PIL import Image, ImageOps


def to_rgb(image):
    """As unida reads it: of 16-bit grey values the high byte, white under what is transparent."""
    if image.mode == "I;16":
        image = Image.frombytes("L", image.size, image.tobytes()[1::2])
    if "A" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


extra = {"unida.json": ""}
model = torch.export.load(sys.argv[1], extra_files=extra).module()
labels, size = (json.loads(extra["unida.json"])[name] for name in ("labels", "size"))
images = []
for path in sys.argv[2:]:
    image = Image.open(path)
    image.draft("RGB", (2 * size, 2 * size))  # a large JPEG is read at a smaller scale
    upright = to_rgb(ImageOps.exif_transpose(image))
    square = upright.resize((size, size), Image.BILINEAR)
    images.append(torch.frombuffer(bytearray(square.tobytes()), dtype=torch.uint8))
said = model(torch.stack(images).view(-1, size, size, 3))
for path, label, p in zip(sys.argv[2:], said["label"], said["probabilities"], strict=True):
    print(path, labels[label], f"{p.max():.6f}", sep="\t")
