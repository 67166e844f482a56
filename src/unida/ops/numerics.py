"""Numerical constants and casts that several losses share."""

import torch
from torch import Tensor

EPS = 1e-8
"""Added inside logarithms where the released code of OVANet and SAN does so."""


def at_least_float32(x: Tensor) -> Tensor:
    """Widen half precision to float32, where 1 − 1e−6 differs from 1."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
