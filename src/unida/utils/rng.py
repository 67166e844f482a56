"""Random streams: one seed, and every use of chance has a name.

A stream is found by hashing the seed with the name of its use and, inside the training loop, the
step. So the draws of step 700 need no history (a resumed run makes the same ones), and a new
stream never shifts the draws of another.
"""

from hashlib import blake2b

import torch


def derive_seed(seed: int, *name: str | int) -> int:
    """The 63-bit seed of the stream called `name`."""
    text = repr((seed, *name)).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") >> 1


def seed_device(device: torch.device, seed: int) -> None:
    """What `torch.manual_seed` does, for a CPU without a word to every kind of GPU there might be:
    that takes longer than a step of small heads."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def generator(seed: int, *name: str | int) -> torch.Generator:
    """A CPU generator for the stream called `name`."""
    return torch.Generator().manual_seed(derive_seed(seed, *name))
