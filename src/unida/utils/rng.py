"""Named random generators: one seed, and a name for every use of randomness.

The seed of a generator is a hash of the run's seed, the name and, inside the training loop, the
step. So the draws of step 700 need no history (a resumed run makes the same ones), and a new
generator never shifts the draws of another.
"""

from hashlib import blake2b

import torch


def derive_seed(seed: int, *name: str | int) -> int:
    """Derive the 63-bit seed of the generator called `name`."""
    text = repr((seed, *name)).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") >> 1


def seed_device(device: torch.device, seed: int) -> None:
    """Seed torch's global generator.

    On a CPU without `torch.manual_seed`, which also seeds every kind of GPU there might be: that
    takes longer than a step of small heads.
    """
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def generator(seed: int, *name: str | int) -> torch.Generator:
    """Make the CPU generator called `name`."""
    return torch.Generator().manual_seed(derive_seed(seed, *name))
