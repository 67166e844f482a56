"""OVANet trained like most released code: a baseline for `against.py` to time.

    python benchmarks/scripts/against.py --source photos --target sketches \\
        --batch 36 --backbone resnet50 \\
        --theirs "python benchmarks/scripts/plain_loop.py photos sketches --backbone resnet50" \\
        --theirs-steps-regex 'Train (\\d+)/'

Written for this repository after the common pattern: data loaders with four workers each, Pillow
decodes and augments one image at a time in every step, kernels are launched one by one, losses are
read back for the log in every step. The arithmetic is as cheap as ours: autocast to bfloat16.
"""

import argparse
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

from unida.data.samples import read_source, read_unlabelled
from unida.losses import one_vs_all, open_entropy
from unida.models.backbones import build_backbone
from unida.models.backbones.base import IMAGENET_MEAN, IMAGENET_STD
from unida.models.heads import ClosedAndOpen


class Images(Dataset[tuple[Tensor, int]]):
    """Image files, decoded and augmented on access."""

    def __init__(self, paths: tuple[Path, ...], labels: Any, size: int) -> None:
        self.paths, self.labels, self.size = paths, labels, size

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        side = round(self.size * 8 / 7)
        with Image.open(self.paths[i]) as file:
            image = file.convert("RGB").resize((side, side), Image.Resampling.BILINEAR)
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        x, y = (random.randint(0, side - self.size) for _ in range(2))
        image = image.crop((x, y, x + self.size, y + self.size))
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
        mean, std = (torch.tensor(v).view(3, 1, 1) for v in (IMAGENET_MEAN, IMAGENET_STD))
        return (pixels - mean) / std, int(self.labels[i])


def cycle(loader: DataLoader[tuple[Tensor, int]]) -> Iterator[list[Tensor]]:
    while True:
        yield from loader


def loaders(args: argparse.Namespace) -> tuple[Iterator[list[Tensor]], Iterator[list[Tensor]], int]:
    source, target = read_source(args.source), read_unlabelled(args.target)
    labels = source.labels
    assert labels is not None
    weights = (1 / np.bincount(labels))[labels].tolist()
    options: dict[str, Any] = {"batch_size": args.batch, "drop_last": True}
    options["num_workers"] = args.workers
    of_source = Images(source.paths, labels, args.image_size)
    of_target = Images(target.paths, np.zeros(len(target), int), args.image_size)
    sampler = WeightedRandomSampler(weights, len(weights))
    return (
        cycle(DataLoader(of_source, sampler=sampler, **options)),
        cycle(DataLoader(of_target, shuffle=True, **options)),
        len(source.classes),
    )


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--backbone", default="resnet50")
    parser.add_argument("--batch", type=int, default=36)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=4, help="of each data loader")
    args = parser.parse_args(argv)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    from_source, from_target, n_classes = loaders(args)
    net = build_backbone(args.backbone, "none")
    heads = ClosedAndOpen(net.out_features, n_classes).to(device)
    body = net.net.to(device).train()
    groups: list[dict[str, Any]] = [
        {"params": body.parameters(), "lr": 1e-3},
        {"params": heads.parameters()},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.01, momentum=0.9, weight_decay=5e-4, nesterov=True)
    for step in range(1, args.steps + 1):
        (images, labels), (others, _) = next(from_source), next(from_target)
        images, labels, others = images.to(device), labels.to(device), others.to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            features, of_others = body(images).float(), body(others).float()
        closed, pairs = heads(features)
        losses = {
            "source": F.cross_entropy(closed, labels),
            "open": one_vs_all(pairs, labels),
            "entropy": 0.1 * open_entropy(heads(of_others)[1]),
        }
        optimizer.zero_grad()
        torch.stack(list(losses.values())).sum().backward()
        optimizer.step()
        values = " ".join(f"{name} {value.item():.4f}" for name, value in losses.items())
        if step % 10 == 0:
            print(f"Train {step}/{args.steps} {values}", flush=True)


if __name__ == "__main__":
    main()
