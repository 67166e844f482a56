"""Predictor + images → arrays, with every image forwarded once."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unida.config import Refinement
from unida.data.augmentations import EVAL_VIEW, make_view
from unida.data.domain import Domain
from unida.data.pixels import PixelStore
from unida.decision.category_shift import (
    ShiftSigns,
    SourceReference,
    TargetSigns,
    build_reference,
)
from unida.decision.predictor import AnyPredictor, Predictor
from unida.decision.refinement import bank_index, build_refiner
from unida.decision.rejection import TargetOutputs
from unida.methods.base import Method
from unida.models.backbones.base import evaluating
from unida.ops.pca import Projection, fit_projection
from unida.types import Features, Outputs, Scored
from unida.utils import distributed
from unida.utils.chunking import RowBuffer

BATCH = 128
BACKBONE_DIMENSIONS = 96
"""Principal components of the backbone's features that are kept of every target image."""

Forward = Callable[[Tensor], tuple[Outputs, Tensor]]
"""From images to outputs and the backbone's features."""


@dataclass(frozen=True)
class FittedTarget:
    """A predictor fitted to the target, and its outputs there.

    Attributes:
        predictor: the method with its refiner.
        classifier: outputs of the method alone.
        refined: outputs after refinement; the same object without a refiner.
        reference: source images, in a common space with the target; None where there are none.
        sample: indices of the target images whose backbone features are kept.
        features: of these images, (n, D).
        projection: of backbone features onto their principal components on these images.
        backbone: of all images, those components, (N, d); (N, 0) where features are not wanted.
    """

    predictor: Predictor
    classifier: Scored
    refined: Scored
    reference: SourceReference | None
    sample: Tensor
    features: Tensor
    projection: Projection
    backbone: Features

    def outputs(self, scored: Scored) -> TargetOutputs:
        """Return what reject rules are fitted to, from outputs on all target images."""
        describe = (lambda: self.signs) if self.reference else None
        return target_outputs(scored, describe, self.sample)

    @cached_property
    def signs(self) -> TargetSigns | None:
        """What the features say about the target; computed once for all outputs and rules."""
        return self.reference.describe(self.features) if self.reference else None


def predict_images(
    predictor: AnyPredictor,
    pixels: PixelStore,
    image_size: int,
    device: torch.device,
    features: bool = True,
    of_backbone: list[Tensor] | None = None,
) -> Scored:
    """Score every image in order; the processes share the work."""
    index = torch.arange(len(pixels))[distributed.shard(len(pixels))]
    batches = (pixels.get(chunk) for chunk in torch.split(index, BATCH))
    return predict_batches(
        predictor, batches, len(index), image_size, device, features, of_backbone
    )


def target_outputs(
    scored: Scored, describe: Callable[[], TargetSigns | None] | None, sample: Tensor
) -> TargetOutputs:
    """Return what reject rules are fitted to.

    Args:
        scored: outputs on all images of a target.
        describe: returns what the features of some images say; without it some rules cannot be
            fitted.
        sample: indices of these images.
    """

    def compare(is_rejected: npt.NDArray[np.bool_]) -> ShiftSigns | None:
        assert describe is not None
        signs = describe()
        if signs is None:
            return None
        some = torch.from_numpy(is_rejected)[sample.cpu()]
        return signs.compare(some.to(signs.margins.device))

    return TargetOutputs(scored.unknown_score, scored.probs, compare if describe else None)


@torch.inference_mode()
def predict_batches(
    predictor: AnyPredictor,
    batches: Iterable[Tensor],
    n_max: int,
    image_size: int,
    device: torch.device,
    features: bool = True,
    of_backbone: list[Tensor] | None = None,
) -> Scored:
    """Score batches of uint8 images (B, 3, S, S).

    A transductive method sees the outputs on all images at once. Each process passes its own images
    and gets the outputs on those of all.

    Args:
        predictor: is left in evaluation mode.
        batches: of this process.
        n_max: images there may be in them.
        image_size: side of what the network sees.
        device: where it computes.
        features: whether they are kept; of very many images they are most of the memory.
        of_backbone: collects the features of the backbone, (N, D), of all processes' images.
    """
    with evaluating(predictor, n_max):
        return _predict(predictor, batches, n_max, image_size, device, features, of_backbone)


def _predict(
    predictor: AnyPredictor,
    batches: Iterable[Tensor],
    n_max: int,
    image_size: int,
    device: torch.device,
    features: bool,
    of_backbone: list[Tensor] | None,
) -> Scored:
    predictor.eval()
    if isinstance(predictor, Predictor) and predictor.method.about.transductive:
        outputs, y = _collect(predictor.classify, batches, n_max, image_size, device)
        if of_backbone is not None:
            of_backbone.append(y)
        return to_arrays(_refine(predictor, predictor.method.postprocess(outputs), y), features)
    collected, backbone_features = _Collector(n_max, features), RowBuffer(n_max)
    for images in batches:
        outputs, y = predictor.predict(_view(images, image_size, device))
        collected.add(outputs)
        if of_backbone is not None:
            backbone_features.add(y)
    if of_backbone is not None:
        of_backbone.append(distributed.gather(backbone_features.all()))
    return to_arrays(collected.gather(), features)


@torch.inference_mode()
def fit_target(
    method: Method,
    target: PixelStore,
    source: Domain,
    image_size: int,
    refinement: Refinement,
    features: bool = True,
    reference: SourceReference | None = None,
) -> FittedTarget:
    """Fit a refiner to the target and score all its images, each forwarded once.

    The images that the refiner keeps come first; the others are refined as they are forwarded.

    Args:
        method: trained; is left in evaluation mode.
        target: its images.
        source: labelled images to compare with (`category_shift.balanced_index`); there may be
            none.
        image_size: side of what the network sees.
        refinement: which one.
        features: whether those of the method are kept.
        reference: of a source model, where there are no source images.
    """
    with evaluating(method, len(target) + len(source)):
        call = (image_size, refinement, features, reference)
        return _fit_target(method, target, source, *call)


def _fit_target(
    method: Method,
    target: PixelStore,
    source: Domain,
    image_size: int,
    refinement: Refinement,
    features: bool,
    reference: SourceReference | None,
) -> FittedTarget:
    method.eval()
    device = source.device
    n, alone = len(target), Predictor(method)
    bank = bank_index(n)
    # All images at once, too, where so few are left that a process would get none.
    at_once = method.about.transductive or n - len(bank) < distributed.world_size()
    first = torch.arange(n) if at_once else bank
    outputs, y = _collect(alone.classify, _batches(target, first), n, image_size, device)
    if method.about.transductive:
        outputs = method.postprocess(outputs)
    some = bank.to(y.device) if len(first) > len(bank) else slice(None)
    kept = Outputs(outputs.probs[some], outputs.unknown_score[some], outputs.features[some])
    kept_y = kept.features if y is outputs.features else y[some]
    if len(source):
        everything = _batches(source.pixels, torch.arange(len(source)))
        of_source = _collect(alone.classify, everything, len(source), image_size, device)
        assert source.samples.labels is not None
        labels = torch.from_numpy(source.samples.labels).to(y.device)
        reference = build_reference(of_source[1], labels, kept_y)
    else:
        none = Outputs(kept.probs[:0], kept.unknown_score[:0], kept.features[:0])
        of_source = none, kept_y[:0]
    refiner = build_refiner(refinement, n, len(source), kept, kept_y)
    if refiner:
        refiner.to(y.device)
        smoothed = refiner.fit((kept, kept_y), of_source)
    predictor = Predictor(method, refiner).eval()
    projection = fit_projection(kept_y, BACKBONE_DIMENSIONS if features else 0)
    projected = projection(y)
    if refiner is None:
        refined = outputs
    else:
        refined = smoothed if len(first) == len(bank) else _refine(predictor, outputs, y)
    if len(first) < n:
        rest = torch.from_numpy(np.setdiff1d(np.arange(n), first.numpy(), assume_unique=True))
        both = [_Collector(n, features), _Collector(n, features)]
        of_rest = RowBuffer(n)
        for images in _batches(target, rest):
            one, of_batch = predictor.classify(_view(images, image_size, device))
            of_rest.add(projection(of_batch))
            both[0].add(one)
            both[1].add(predictor.refine(one, of_batch))
        order = torch.cat([first, rest]).argsort()
        projected = torch.cat([projected, distributed.gather(of_rest.all())])[order]
        outputs, refined = (
            _concatenate([head, tail.gather()], order, features)
            for head, tail in zip((outputs, refined), both, strict=True)
        )
    classifier = to_arrays(outputs, features)
    return FittedTarget(
        predictor=predictor,
        classifier=classifier,
        refined=to_arrays(refined, features) if refiner else classifier,
        reference=reference,
        sample=bank,
        features=kept_y,
        projection=projection,
        backbone=projected.float().cpu().numpy(),
    )


def to_arrays(outputs: Outputs, features: bool = True) -> Scored:
    """Move outputs to the host; features (N, 0) where they are not wanted."""
    width = None if features else 0
    return Scored(
        probs=outputs.probs.cpu().double().numpy(),
        unknown_score=outputs.unknown_score.cpu().double().numpy(),
        features=outputs.features[:, :width].float().cpu().numpy(),
    )


def mean_scored(scored: Sequence[Scored]) -> Scored:
    """The outputs of an ensemble from those of its members."""
    if len(scored) == 1:
        return scored[0]
    return Scored(
        probs=np.mean([one.probs for one in scored], 0),
        unknown_score=np.mean([one.unknown_score for one in scored], 0),
        features=np.concatenate([one.features for one in scored], 1),
    )


class _Collector:
    """Outputs that come in batches."""

    def __init__(self, n_max: int, features: bool = True) -> None:
        self.with_features = features
        self.probs, self.scores, self.features = (RowBuffer(n_max) for _ in range(3))

    def add(self, outputs: Outputs) -> None:
        self.probs.add(outputs.probs)
        self.scores.add(outputs.unknown_score)
        self.features.add(outputs.features if self.with_features else outputs.features[:, :0])

    def gather(self) -> Outputs:
        """The outputs of all processes, in order."""
        rows = (self.probs.all(), self.scores.all(), self.features.all())
        return Outputs(*map(distributed.gather, rows))


def _collect(
    forward: Forward, batches: Iterable[Tensor], n_max: int, image_size: int, device: torch.device
) -> tuple[Outputs, Tensor]:
    """Outputs and backbone features of all images; one tensor where both features are the same."""
    collected, features, is_same = _Collector(n_max), RowBuffer(n_max), False
    for images in batches:
        outputs, y = forward(_view(images, image_size, device))
        collected.add(outputs)
        is_same = outputs.features is y
        if not is_same:
            features.add(y)
    gathered = collected.gather()
    return gathered, gathered.features if is_same else distributed.gather(features.all())


def _refine(predictor: Predictor, outputs: Outputs, y: Tensor) -> Outputs:
    """Refine outputs that are collected already, a batch at a time."""
    if predictor.refiner is None:
        return outputs
    parts = [
        predictor.refine(Outputs(*rows), of_part)
        for *rows, of_part in zip(
            *(torch.split(x, BATCH) for x in (outputs.probs, outputs.unknown_score)),
            torch.split(outputs.features, BATCH),
            torch.split(y, BATCH),
            strict=True,
        )
    ]
    probs, scores = torch.cat([p.probs for p in parts]), torch.cat([p.unknown_score for p in parts])
    return Outputs(probs, scores, outputs.features)


def _concatenate(parts: Sequence[Outputs], order: Tensor, features: bool) -> Outputs:
    """Join outputs and put them into an order."""
    width = None if features else 0
    return Outputs(
        probs=torch.cat([p.probs for p in parts])[order],
        unknown_score=torch.cat([p.unknown_score for p in parts])[order],
        features=torch.cat([p.features[:, :width] for p in parts])[order],
    )


def _batches(pixels: PixelStore, index: Tensor) -> Iterable[Tensor]:
    """Pixels at this process's share of an index."""
    mine = index[distributed.shard(len(index))]
    return (pixels.get(chunk) for chunk in torch.split(mine, BATCH))


def _view(images: Tensor, image_size: int, device: torch.device) -> Tensor:
    return make_view(EVAL_VIEW, images.to(device), image_size, torch.Generator())
