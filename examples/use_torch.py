"""Labels images with a file of `unida export --format torch`; needs torch and Pillow only."""

import json
import sys

import torch
from PIL import Image, ImageOps

extra = {"unida.json": ""}
model = torch.export.load(sys.argv[1], extra_files=extra).module()
labels, size = (json.loads(extra["unida.json"])[name] for name in ("labels", "size"))
images = []
for path in sys.argv[2:]:
    image = Image.open(path)
    image.draft("RGB", (2 * size, 2 * size))  # a large JPEG is read at a smaller scale
    square = ImageOps.exif_transpose(image).convert("RGB").resize((size, size), Image.BILINEAR)
    images.append(torch.frombuffer(bytearray(square.tobytes()), dtype=torch.uint8))
said = model(torch.stack(images).view(-1, size, size, 3))
for path, label, p in zip(sys.argv[2:], said["label"], said["probabilities"], strict=True):
    print(path, labels[label], f"{p.max():.6f}", sep="\t")
