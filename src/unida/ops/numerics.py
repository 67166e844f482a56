"""What several losses share: a number, and the least precision they compute in."""

import torch
from torch import Tensor

EPS = 1e-8
"""Added inside logarithms where the released code of OVANet and SAN does so."""


def at_least_float32(x: Tensor) -> Tensor:
    """Half precision is widened: 1 − 1e−6 is 1 there."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
