"""A trained model: loaded from one file, it labels images and says 'unknown'."""

import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from safetensors.torch import save as save_tensors
from torch import Tensor

from unida.config import from_mapping
from unida.data.decode import BadImageError, Pixels, decode_file, to_square
from unida.data.in_memory import Opener, decode_opened, wrap_array
from unida.data.pixels import ArrayStore
from unida.data.samples import Skipped, read_unlabelled
from unida.decision.calibration import confidence
from unida.decision.ensemble import Ensemble, backbones, make_ensemble
from unida.decision.inference import predict_batches, predict_images
from unida.decision.rejection import Rule, decide, pick_rule
from unida.errors import UserError, require, shorten
from unida.methods import METHODS, Method
from unida.models.backbones import rebuild_backbone
from unida.models.weights import load_strictly, read_weights
from unida.training.run_folder import RunFolder, write_file
from unida.types import Prediction, Scored, Sizes
from unida.utils import distributed
from unida.utils.devices import pick_device
from unida.utils.parallel import in_order

FORMAT = 6

OneImage = str | Path | Image.Image | Opener
Images = Sequence[OneImage] | OneImage | Tensor | npt.NDArray[Any]
_Item = Path | Image.Image | Opener


@dataclass(frozen=True)
class Model:
    """A trained model and everything needed to use it.

    Attributes:
        method: the network, in evaluation mode.
        method_name: key of `METHODS`.
        classes: the known classes.
        image_size: side of what the network sees.
        pixel_size: side of what it is cut from.
        rules: reject rules that were fitted, by the name they were asked for.
        reject: the rule used unless another is asked for.
        device: where it computes.
        temperature: of the confidences (`unida.decision.calibration`).
        known: quantiles of the unknown scores of held-out source images
        (`unida.decision.rejection`).
    """

    method: Method
    method_name: str
    classes: tuple[str, ...]
    image_size: int
    pixel_size: int
    rules: dict[str, Rule]
    reject: str
    device: torch.device
    temperature: float = 1.0
    known: tuple[float, ...] = ()

    def rule(self, name: str | None = None) -> Rule:
        return pick_rule(self.rules, name or self.reject, self.known)

    def with_rule(self, name: str) -> "Model":
        """The same with one more rule among its rules."""
        return dataclasses.replace(self, rules=self.rules | {name: self.rule(name)})

    def predict(
        self,
        images: Images,
        reject: str | None = None,
        skipped: list[Skipped] | None = None,
    ) -> list[Prediction]:
        """Labels images.

        Args:
            images: image files, folders of images, PIL images or functions that give one; one or
                several. An array of images, uint8; or of their embeddings as the backbone makes
                them, (N, D).
            reject: a rule by name (`unida.decision.rejection.RULES`), such as `own` or
            `source:0.05`; by
                default the model's.
            skipped: collects bad files; without it a bad file is an error.
        """
        rule = self.rule(reject)
        paths, scored = self.score(images, skipped, features=False)
        return list(to_predictions(paths, scored, rule, self.classes, self.temperature))

    def score(
        self, images: Images, skipped: list[Skipped] | None = None, features: bool = True
    ) -> tuple[list[Path | None], Scored]:
        """What the method says of images, before any rule decides; `features` if they are wanted.

        Returns:
            The path of each image that could be used (None for one in memory) and its outputs.
        """
        if isinstance(images, Tensor) and images.dtype == torch.uint8:
            images = images.numpy(force=True)  # pictures; embeddings are not whole numbers
        if isinstance(images, np.ndarray):
            images = wrap_array(images).items
        if isinstance(images, Tensor):
            return self._score_embeddings(images, features)
        if self.method.backbone.is_precomputed:
            raise UserError(
                "This model was trained on embeddings and has no backbone: hand over embeddings, "
                f"{self.method.backbone.out_features} numbers an image."
            )
        one = isinstance(images, str | Path | Image.Image) or callable(images)
        items = list(_expand([images] if one else images))  # type: ignore[list-item, arg-type]
        n, items = len(items), items[distributed.shard(len(items))]
        if distributed.world_size() > max(n, 1):
            raise UserError(
                f"{n} images are too few for {distributed.world_size()} processes: start one."
            )
        paths: list[Path | None] = []
        bad: list[Skipped] = []
        decoded = self._decoded(items, paths, bad)
        first = next(decoded, None)
        if first is None:
            reasons = shorten([f"{one.path} ({one.reason})" for one in bad], 3)
            raise UserError(f"There is no image to look at: {reasons or 'none was given'}.")
        alone = (
            len(first) == distributed.world_size() == 1
        )  # and so the last batch: only that is not full
        if alone and (skipped is not None or not bad):
            self._refuse_one()
        batches = itertools.chain([first], decoded)
        scored = predict_batches(
            self.method, batches, len(items), self.image_size, self.device, features
        )
        paths, bad = distributed.gather_objects(paths), distributed.gather_objects(bad)
        if bad and skipped is None:
            raise UserError(
                f"{bad[0].path} cannot be used: {bad[0].reason}. Leave it out, or let "
                "Model.predict(…, skipped=[]) do so and note it."
            )
        if skipped is not None:
            skipped += bad
        return paths, scored

    def _score_embeddings(self, rows: Tensor, features: bool) -> tuple[list[Path | None], Scored]:
        """Of embeddings, a row an image; the backbone is not asked."""
        width = self.method.backbone.out_features
        fits = rows.ndim in (2, 3) and rows.shape[-1] == width and len(rows) > 0
        require(fits, "shape of the embeddings", tuple(rows.shape), f"(N, {width})")
        if len(rows) == 1:
            self._refuse_one()
        store = ArrayStore((rows if rows.ndim == 3 else rows[:, None]).float())
        scored = predict_images(self.method, store, self.image_size, self.device, features=features)
        return [None] * len(rows), scored

    def _refuse_one(self) -> None:
        """One image, where the method cannot judge it alone."""
        if self.method.about.transductive:
            raise UserError(
                f"{self.method_name} judges a set of images as a whole (it is transductive): "
                "hand over all of them, not one."
            )

    def _decoded(
        self, items: list[_Item], paths: list[Path | None], bad: list[Skipped]
    ) -> Iterator[Tensor]:
        """Batches of pixels; notes the path of each image, and what is left out."""
        pixels: list[Pixels] = []
        for result in in_order(self._decode, items):
            if isinstance(result, Skipped):
                bad.append(result)
                continue
            paths.append(result[0])
            pixels.append(result[1])
            if len(pixels) == 128:
                yield torch.from_numpy(np.stack(pixels))
                pixels = []
        if pixels:
            yield torch.from_numpy(np.stack(pixels))

    def _decode(self, item: _Item) -> tuple[Path | None, Pixels] | Skipped:
        path = item if isinstance(item, Path) else None
        try:
            if isinstance(item, Image.Image):
                return path, to_square(item, self.pixel_size)
            if not isinstance(item, Path):
                return path, decode_opened(item, self.pixel_size)
            return path, decode_file(item, self.pixel_size)
        except BadImageError as error:
            return Skipped(path or Path("an image in memory"), str(error))

    def save(self, path: Path) -> None:
        """Writes weights and description into one safetensors file."""
        description = {
            "format": FORMAT,
            "method": self.method_name,
            "settings": dataclasses.asdict(self.method.config),
            "backbone": self.method.backbone.spec,
            "pretrained": self.method.backbone.pretrained,
            "classes": self.classes,
            "sizes": dataclasses.asdict(self.method.sizes),
            "image_size": self.image_size,
            "pixel_size": self.pixel_size,
            "reject": self.reject,
            "rules": {name: dataclasses.asdict(rule) for name, rule in self.rules.items()},
            "temperature": self.temperature,
            "known": self.known,
        }
        if isinstance(self.method, Ensemble):
            description["members"] = len(self.method.members)
            description["one_network"] = self.method.one_network
        state, left_out = self.method.state_dict(), self.method.training_only
        tensors = {k: v.detach().cpu().contiguous() for k, v in state.items() if k not in left_out}
        content = save_tensors(tensors, metadata={"unida": json.dumps(description)})
        write_file(path, lambda file: file.write(content))


def load(run: str | Path, device: str = "auto") -> Model:
    """Loads a trained model from a run folder or a model.safetensors."""
    path = Path(run)
    if path.is_dir() or not path.exists():
        folder = RunFolder(path)
        if not folder.model.exists():
            state = "is not finished" if folder.config.exists() else "holds no run"
            raise UserError(f"{path} {state}: there is no model.safetensors in it.")
        path = folder.model
    tensors, remarks = read_weights(path)
    if "unida" not in remarks:
        raise UserError(f"{path} is not a model of unida.")
    d = json.loads(remarks["unida"])
    require(d["format"] == FORMAT, f"format of {path}", d["format"], f"{FORMAT}; train it again")
    cls = METHODS[d["method"]]
    backbone = rebuild_backbone(d["backbone"])
    backbone.pretrained = d.get("pretrained", True)
    settings: Any = from_mapping(cls.Config, d["settings"], d["method"])
    sizes, places = Sizes(**d["sizes"]), backbones(backbone, *_members(d))
    with torch.device("meta"):  # nothing is allocated: the stored tensors take their places
        method = make_ensemble([cls(settings, place, sizes) for place in places], backbone)
    method.drop_training_state()
    load_strictly(method, tensors, str(path), assign=True)
    where = pick_device(device)
    return Model(
        method=method.to(where).eval(),
        method_name=d["method"],
        classes=tuple(d["classes"]),
        image_size=d["image_size"],
        pixel_size=d["pixel_size"],
        rules={name: Rule(**rule) for name, rule in d["rules"].items()},
        reject=d["reject"],
        device=where,
        temperature=d["temperature"],
        known=tuple(d["known"]),
    )


def _members(description: dict[str, Any]) -> tuple[int, bool]:
    """How many models there are in one, and whether they share a network."""
    return description.get("members", 1), description.get("one_network", False)


def to_predictions(
    paths: Sequence[Path | None],
    scored: Scored,
    rule: Rule,
    classes: tuple[str, ...],
    temperature: float = 1.0,
) -> Iterator[Prediction]:
    """The verdicts on scored images, one at a time; confidences at that temperature."""
    labels = decide(scored.probs, scored.unknown_score, rule, classes)
    sure = confidence(scored.probs, temperature)
    rows = zip(paths, labels, sure, scored.unknown_score, strict=True)
    return (Prediction(path, label, float(c), float(u), rule.name) for path, label, c, u in rows)


def _expand(items: Iterable[OneImage]) -> Iterable[_Item]:
    for item in items:
        if isinstance(item, Image.Image) or callable(item):
            yield item
        elif Path(item).is_dir():
            yield from read_unlabelled(item).paths
        else:
            yield Path(item)
