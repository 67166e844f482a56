"""Pure functions: tensors in, a scalar tensor out; no config, no module."""

from unida.losses.all_in_one import all_in_one
from unida.losses.contrastive import info_nce, soft_contrastive, squared_distances, t_kernel
from unida.losses.entropy import open_entropy

__all__ = [
    "all_in_one",
    "info_nce",
    "open_entropy",
    "soft_contrastive",
    "squared_distances",
    "t_kernel",
]
