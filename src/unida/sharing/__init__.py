"""Sharing a trained model: a folder of safetensors and JSON with a model card, and the hub.

`card.py` writes the card, `folder.py` the files, `hub.py` moves them to and from the Hugging Face
hub. Loading a model is in `model.py`; models as ONNX files are in `export.py`.
"""
