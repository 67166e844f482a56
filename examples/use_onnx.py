"""Labels images with a file of `unida export`; needs onnxruntime, numpy and Pillow only."""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

model = onnxruntime.InferenceSession(sys.argv[1])
about = model.get_modelmeta().custom_metadata_map
labels, size, images = json.loads(about["labels"]), int(about["size"]), []
for path in sys.argv[2:]:
    image = Image.open(path)
    image.draft("RGB", (2 * size, 2 * size))  # a large JPEG is read at a smaller scale
    upright = ImageOps.exif_transpose(image).convert("RGB")
    images.append(np.asarray(upright.resize((size, size), Image.BILINEAR)))
found, probabilities, _ = model.run(None, {"images": np.stack(images)})
for path, label, p in zip(sys.argv[2:], found, probabilities, strict=True):
    print(path, labels[label], f"{p.max():.6f}", sep="\t")
