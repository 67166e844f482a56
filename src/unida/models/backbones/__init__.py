"""Backbones by name: our ResNet and small CNN, `hf:` and `timm:` adapters.

Each maps images in [0, 1] to features (B, D). A backbone is added in one file and one line of the
registry in `base.py`.
"""
