"""Serves a file of `unida export` over HTTP: images in, labels or 'unknown' out. No torch."""

import io
import json
import os
import warnings

import numpy as np
import onnxruntime
from fastapi import FastAPI, HTTPException, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from PIL import Image, ImageOps

MOST_FILES, MOST_BYTES, Image.MAX_IMAGE_PIXELS = 64, 20_000_000, 50_000_000
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
warnings.simplefilter("error", Image.DecompressionBombWarning)
model = onnxruntime.InferenceSession(os.environ.get("MODEL", "model.onnx"))
about = model.get_modelmeta().custom_metadata_map
labels, size = json.loads(about["labels"]), int(about["size"])
app = FastAPI(title="unida")


@app.middleware("http")
async def refuse_large(request: Request, call_next):
    length = request.headers.get("content-length", "")  # without it, a body could be endless
    if request.method == "POST" and not length.isdigit():
        return JSONResponse({"detail": "The request must say its Content-Length."}, 411)
    if request.method == "POST" and int(length) > MOST_BYTES:
        return JSONResponse({"detail": f"{MOST_BYTES:,} bytes a request at most."}, 413)
    return await call_next(request)


@app.exception_handler(RequestValidationError)
def refuse_other_forms(request: Request, error: RequestValidationError) -> JSONResponse:
    return JSONResponse({"detail": "Send a form with one file or several called 'images'."}, 422)


def pixels(file: UploadFile) -> np.ndarray:
    try:
        image = Image.open(io.BytesIO(file.file.read()), formats=FORMATS)
        image.draft("RGB", (2 * size, 2 * size))  # a large JPEG is read at a smaller scale
        upright = ImageOps.exif_transpose(image).convert("RGB")
        return np.asarray(upright.resize((size, size), Image.BILINEAR))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise HTTPException(413, f"{file.filename!r} has too many pixels.") from None
    except Exception:  # a damaged image raises nearly any type
        raise HTTPException(415, f"{file.filename!r} is not an image that can be read.") from None


@app.get("/healthz")
def healthz() -> dict:
    return {"status": "ok", "classes": len(labels) - 1, "rule": about["rule"]}


@app.post("/predict")
def predict(images: list[UploadFile]) -> list[dict]:
    if len(images) > MOST_FILES:
        raise HTTPException(413, f"{len(images)} images are too many: {MOST_FILES} at most.")
    batch = np.stack([pixels(file) for file in images])
    found, probabilities, scores = model.run(None, {"images": batch})
    return [
        {"file": f.filename, "label": labels[k], "confidence": float(p.max()), "unknown_score": s}
        for f, k, p, s in zip(images, found, probabilities, map(float, scores), strict=True)
    ]
