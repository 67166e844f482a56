"""A trained model: method, refinement, reject rule and calibration in one file."""

import dataclasses
import itertools
import json
import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from safetensors.torch import save as save_tensors
from torch import Tensor

from unida.config import CpuPrecision, from_mapping
from unida.data.cache import default_cache_dir
from unida.data.decode import BadImageError, Pixels, decode_file, to_square
from unida.data.domain import cache_folder
from unida.data.embeddings import open_cache
from unida.data.in_memory import Opener, decode_opened, wrap_array
from unida.data.pixels import ArrayStore
from unida.data.samples import Skipped, read_unlabelled
from unida.data.tables import as_path, is_table, read_table
from unida.decision.calibration import confidence
from unida.decision.category_shift import MAX_TARGET, MIN_TARGET, SourceReference
from unida.decision.inference import predict_batches, predict_images, target_outputs
from unida.decision.predictor import (
    AnyPredictor,
    Ensemble,
    Predictor,
    combine,
    member_backbones,
)
from unida.decision.refinement import Refiner
from unida.decision.rejection import Rule, decide, fit_rules, pick_rule, quantiles
from unida.errors import UserError, require, require_known, shorten
from unida.legacy import migrate_model
from unida.methods import METHODS, Method
from unida.methods.presets import load_config
from unida.models.backbones import rebuild_backbone
from unida.models.backbones.base import Backbone
from unida.models.description import parse_description, refusing_damage
from unida.models.slim import NET, fill, find, halve, refer
from unida.models.weights import load_strictly, read_weights
from unida.sharing.folder import write_shared
from unida.sharing.hub import PREFIX, download, is_hub_place, parse_place, upload
from unida.training.run_folder import RunFolder, write_file
from unida.types import FloatArray, Prediction, Scored, Sizes
from unida.utils import distributed
from unida.utils.chunking import subsample
from unida.utils.devices import pick_device
from unida.utils.parallel import in_order

FORMAT = 9
_REFERENCE = "reference."
"""Start of the names of the reference's tensors in the file."""

MIN_CACHED = 32
"""Images from which on the cache folder is searched for their embeddings."""

OneImage = str | Path | Image.Image | Opener
ImageInput = Sequence[OneImage] | OneImage | Tensor | npt.NDArray[Any]
_Item = Path | Image.Image | Opener


@dataclass(frozen=True)
class Model:
    """A trained model and everything needed to use it.

    Attributes:
        predictor: the method with its refiner, or an ensemble, in evaluation mode.
        method_name: key of `METHODS`.
        classes: the known classes.
        image_size: side of what the network sees.
        pixel_size: side of what it is cut from.
        rules: fitted reject rules, by name.
        reject: the rule used unless another is named.
        device: where it computes.
        temperature: of the confidences (`unida.decision.calibration`).
        known: quantiles of the unknown scores of held-out source images
            (`unida.decision.rejection`).
        target: quantiles of the unknown scores that the rules were fitted to.
        reference: source images, to fit a rule to another target; models of version 0.1 have none.
        origin: run folder, or folder of a shared model, that it came from; None where unknown.
        cache_dir: cache folder. Where the backbone is frozen, embeddings in it are used again; None
            computes all of them.
    """

    predictor: AnyPredictor
    method_name: str
    classes: tuple[str, ...]
    image_size: int
    pixel_size: int
    rules: dict[str, Rule]
    reject: str
    device: torch.device
    temperature: float = 1.0
    known: tuple[float, ...] = ()
    target: tuple[float, ...] = ()
    reference: SourceReference | None = None
    origin: Path | None = None
    cache_dir: Path | None = None

    @property
    def method(self) -> Method:
        """The method; the first member's in an ensemble."""
        return self.predictor.method

    @property
    def shares_backbone(self) -> bool:
        """Whether several members have one backbone."""
        return isinstance(self.predictor, Ensemble) and self.predictor.shares_backbone

    @property
    def backbone(self) -> Backbone:
        return self.predictor.backbone

    def rule(self, name: str | None = None) -> Rule:
        """Return a fitted rule; the model's own choice by default."""
        return pick_rule(self.rules, name or self.reject, self.known)

    def with_rule(self, name: str) -> "Model":
        """Return the model with one more rule."""
        return dataclasses.replace(self, rules=self.rules | {name: self.rule(name)})

    def refit_rules(
        self, images: ImageInput, skipped: list[Skipped] | None = None
    ) -> tuple["Model", list[Path | None], Scored]:
        """Fit the reject rules to other images, without training.

        Args:
            images: as for `predict`; unlabelled, from the domain they will be used on.
            skipped: collects bad files; without it a bad file is an error.

        Returns:
            The model with the rules; the path of each image that could be used, and its outputs.
        """
        if self.reference is None:
            raise UserError(
                "The model, or its source model, is of version 0.1 and has no source images to fit "
                "a rule with: train again, or take another --reject."
            )
        of_backbone: list[Tensor] = []
        paths, scored = self.score(images, skipped, features=False, of_backbone=of_backbone)
        y = torch.cat(of_backbone)
        some = torch.from_numpy(subsample(len(y), MAX_TARGET, 0, "neighbours"))
        kept, reference = y[some.to(y.device)], self.reference
        outputs = target_outputs(scored, lambda: reference.describe(kept), some)
        rules = self.rules | fit_rules(outputs, self.known)
        changed = dataclasses.replace(self, rules=rules, target=quantiles(scored.unknown_score))
        return changed, paths, scored

    def score_shift(self, scores: FloatArray) -> float | None:
        """Compare unknown scores with those that the rules were fitted to.

        Returns:
            The Kolmogorov-Smirnov distance beyond what chance explains, from 0 to 1; None where
            the model has no such scores or there are fewer than 20.
        """
        if not self.target or len(scores) < MIN_TARGET:
            return None
        of_fit = np.array(self.target)
        levels = np.linspace(0, 1, len(of_fit))
        ordered = np.sort(scores)
        empirical = np.arange(1, len(ordered) + 1) / len(ordered)
        distance = np.abs(np.interp(ordered, of_fit, levels) - empirical).max()
        return max(0.0, float(distance) - 1.63 / math.sqrt(len(scores)))

    def predict(
        self,
        images: ImageInput,
        reject: str | None = None,
        skipped: list[Skipped] | None = None,
    ) -> list[Prediction]:
        """Label images.

        Args:
            images: image files, folders of images, PIL images or functions that return one; one or
                several. An array of images, uint8; or of their embeddings by the backbone, (N, D),
                or files of those, .parquet or .npy.
            reject: a rule by name (`unida.decision.rejection.RULES`), such as `own` or
                `source:0.05`; by default the model's.
            skipped: collects bad files; without it a bad file is an error.
        """
        rule = self.rule(reject)
        paths, scored = self.score(images, skipped, features=False)
        return list(to_predictions(paths, scored, rule, self.classes, self.temperature))

    def score(
        self,
        images: ImageInput,
        skipped: list[Skipped] | None = None,
        features: bool = True,
        of_backbone: list[Tensor] | None = None,
    ) -> tuple[list[Path | None], Scored]:
        """Compute outputs on images, before a rule is applied.

        Args:
            images: as for `predict`.
            skipped: collects bad files; without it a bad file is an error.
            features: whether those of the method are wanted.
            of_backbone: collects the features of the backbone, (N, D).

        Returns:
            The path of each image that could be used (None for one in memory) and its outputs.
        """
        if isinstance(images, Tensor) and images.dtype == torch.uint8:
            images = images.numpy(force=True)  # pictures; embeddings are not whole numbers
        if isinstance(images, np.ndarray):
            images = wrap_array(images).items
        if isinstance(images, Tensor):
            return self._score_embeddings(images, features, of_backbone)
        if tables := _tables_in(images):
            return self._score_tables(tables, features, of_backbone)
        if self.backbone.is_precomputed:
            raise UserError(
                "This model was trained on embeddings and has no backbone: pass embeddings, "
                f"{self.backbone.out_features} numbers an image, as an array, .parquet or .npy."
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
            raise UserError(f"There is no image to label: {reasons or 'none was given'}.")
        alone = (
            len(first) == distributed.world_size() == 1
        )  # and so the last batch: only that is not full
        if alone and (skipped is not None or not bad):
            self._refuse_one()
        batches = self._embedded(itertools.chain([first], decoded), n)
        scored = predict_batches(
            self.predictor,
            batches,
            len(items),
            self.image_size,
            self.device,
            features,
            of_backbone,
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

    def _embedded(self, batches: Iterator[Tensor], n: int) -> Iterator[Tensor]:
        """Replace images by their embeddings where the cache folder has some by this backbone.

        Args:
            batches: of images.
            n: images in all of them; for a few, a search takes longer than the backbone.
        """
        if self.cache_dir is None or not self.method.sizes.frozen or n < MIN_CACHED:
            return batches
        cache = open_cache(self.cache_dir, self.backbone, self.image_size)
        if not cache.found:
            return batches
        return (
            cache.embed(images.to(self.device), self.backbone, self.image_size)
            for images in batches
        )

    def _score_tables(
        self, places: list[Path], features: bool, of_backbone: list[Tensor] | None
    ) -> tuple[list[Path | None], Scored]:
        """Compute outputs on the embeddings of tables."""
        tables, width = [read_table(place) for place in places], self.backbone.out_features
        for place, table in zip(places, tables, strict=True):
            if table.width != width:
                raise UserError(
                    f"The embeddings in {place} have {table.width} numbers, and the model takes "
                    f"{width}: embed the images with the network that the model was trained on."
                )
        rows = torch.from_numpy(np.concatenate([table.embeddings for table in tables]))
        scored = self._score_embeddings(rows, features, of_backbone)[1]
        return [as_path(path) for table in tables for path in table.paths], scored

    def _score_embeddings(
        self, rows: Tensor, features: bool, of_backbone: list[Tensor] | None
    ) -> tuple[list[Path | None], Scored]:
        """Compute outputs on embeddings, a row an image."""
        width = self.backbone.out_features
        fits = rows.ndim in (2, 3) and rows.shape[-1] == width and len(rows) > 0
        require(fits, "shape of the embeddings", tuple(rows.shape), f"(N, {width})")
        if len(rows) == 1:
            self._refuse_one()
        store = ArrayStore((rows if rows.ndim == 3 else rows[:, None]).float())
        scored = predict_images(
            self.predictor, store, self.image_size, self.device, features, of_backbone
        )
        return [None] * len(rows), scored

    def _refuse_one(self) -> None:
        """Refuse a single image where the method is transductive."""
        if self.method.about.transductive:
            raise UserError(
                f"{self.method_name} labels a set of images as a whole (it is transductive): "
                "pass all of them, not one."
            )

    def _decoded(
        self, items: list[_Item], paths: list[Path | None], bad: list[Skipped]
    ) -> Iterator[Tensor]:
        """Decode images into batches; collect the path of each, and what is left out."""
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

    def save(self, path: Path, slim: bool = False, half: bool = False) -> None:
        """Write weights and description into one safetensors file.

        Args:
            path: of the file.
            slim: leave out the weights of a backbone that was not trained; the file they are from
                is named, with its sha256.
            half: store matrices and kernels in half precision.
        """
        alone = len(_members_of(self.predictor)) == 1 or self.shares_backbone
        allowed = "false for an ensemble whose members have a backbone each"
        require(not slim or alone, "slim", slim, allowed)
        reference = refer(self.backbone) if slim else None
        self._write(path, self.description() | {"weights": reference}, half)

    def save_pretrained(
        self, folder: str | Path, *, license: str | None = None, force: bool = False
    ) -> Path:
        """Write the model as a folder to share: safetensors, JSON and a model card.

        Args:
            folder: new or empty; `unida.load` reads it.
            license: of the model, as the hub calls it, such as `mit`; none is assumed.
            force: write over a shared model that is there.

        Returns:
            The folder.
        """
        return self._share(Path(folder), "path/to/this/folder", license, force)

    def push_to_hub(
        self,
        repo: str,
        *,
        license: str | None = None,
        private: bool = True,
        force: bool = False,
        client: Any = None,
    ) -> str:
        """Upload the model with its card to the Hugging Face hub.

        Args:
            repo: `owner/name`, made if it is not there; `unida.load("hf:owner/name")` reads it.
            license: as for `save_pretrained`.
            private: whether a new repository is; one that is there stays as it is.
            force: replace a model that is there.
            client: what stands for `huggingface_hub.HfApi`, for another hub.

        Returns:
            The address of the model.
        """
        repo, revision = parse_place(repo)
        require(revision is None, "the model on the hub", f"{repo}@{revision}", "owner/name")
        with tempfile.TemporaryDirectory(prefix="unida-") as folder:
            shared = self._share(Path(folder), f"{PREFIX}{repo}", license, force=False)
            return upload(shared, repo, private=private, force=force, client=client)

    def _share(self, folder: Path, place: str, license: str | None, force: bool) -> Path:
        described = (self.description(), self.rule(), self.origin)
        return write_shared(folder, self._write, *described, place, license, force)

    def description(self) -> dict[str, Any]:
        """Return what the file says besides the weights."""
        members = _members_of(self.predictor)
        return {
            "format": FORMAT,
            "method": self.method_name,
            "settings": dataclasses.asdict(self.method.config),
            "backbone": self.backbone.spec,
            "pretrained": self.backbone.pretrained,
            "classes": self.classes,
            "sizes": dataclasses.asdict(self.method.sizes),
            "image_size": self.image_size,
            "pixel_size": self.pixel_size,
            "reject": self.reject,
            "rules": {name: rule.to_json() for name, rule in self.rules.items()},
            "temperature": self.temperature,
            "known": self.known,
            "target": self.target,
            "reference": self.reference.config if self.reference else None,
            "refiners": [one.refiner.config if one.refiner else None for one in members],
            "shares_backbone": self.shares_backbone,
            "weights": None,
        }

    def _write(self, path: Path, description: dict[str, Any], half: bool = False) -> None:
        tensors = {
            _stored_name(name): tensor.detach().cpu().contiguous()
            for name, tensor in self.predictor.state_dict().items()
            if name not in _training_only(self.predictor)
        }
        if description["weights"]:
            tensors = {name: t for name, t in tensors.items() if not name.startswith(NET)}
        if self.reference:
            tensors |= {
                f"{_REFERENCE}{name}": tensor.cpu().contiguous()
                for name, tensor in self.reference.state_dict().items()
            }
        tensors = halve(tensors) if half else tensors
        content = save_tensors(tensors, metadata={"unida": json.dumps(description)})
        write_file(path, lambda file: file.write(content))


def load(
    run: str | Path,
    device: str = "auto",
    cpu_precision: CpuPrecision = "fp32",
    weights: str | Path | None = None,
) -> Model:
    """Load a trained model.

    Args:
        run: a run folder, a model.safetensors, a folder that `save_pretrained` wrote, or a model
            on the Hugging Face hub: `hf:owner/name`, or `hf:owner/name@revision`.
        device: auto, cpu, cuda, cuda:N or mps.
        cpu_precision: arithmetic of the backbone on a CPU; bf16 is faster where the CPU has it.
        weights: the file that a slim model refers to, where it was moved.
    """
    allowed = get_args(CpuPrecision)
    require(cpu_precision in allowed, "cpu_precision", cpu_precision, ", ".join(allowed))
    path = download(str(run)) if is_hub_place(str(run)) else Path(run)
    cache_dir = default_cache_dir()
    origin = path if path.is_dir() else None
    if path.is_dir() or not path.exists():
        folder = RunFolder(path)
        if not folder.model.exists():
            state = "is not finished" if folder.config.exists() else "holds no run"
            raise UserError(f"{path} {state}: there is no model.safetensors in it.")
        path, cache_dir = folder.model, _cache_of(folder)
    tensors, metadata = read_weights(path)
    if "unida" not in metadata:
        raise UserError(f"{path} is not a model of unida.")
    where, reference = pick_device(device), None
    d = parse_description(metadata["unida"], str(path))
    with refusing_damage(str(path)):
        d, tensors = migrate_model(d, tensors, FORMAT, str(path))
        source = None
        if d["weights"]:
            source, found = find(d["weights"], path, weights)
            tensors = fill(tensors, found, rebuild_backbone(d["backbone"]))
        of_reference, of_predictor = {}, {}
        for name, tensor in tensors.items():
            if name.startswith(_REFERENCE):
                of_reference[name.removeprefix(_REFERENCE)] = tensor
            else:
                of_predictor[_module_name(name, d)] = tensor
        predictor = _build_predictor(d, of_predictor)
        load_strictly(predictor, of_predictor, str(path), True)
        if d["reference"]:
            with torch.device("meta"):
                reference = SourceReference(**d["reference"])
            load_strictly(reference, of_reference, str(path), True)
        for module in predictor.modules():
            if isinstance(module, Backbone):
                module.cpu_precision = cpu_precision
        predictor.backbone.weights_source = source
        rules = {name: Rule.from_json(rule) for name, rule in d["rules"].items()}
        known, fitted_to = tuple(d["known"]), tuple(d["target"])
    return Model(
        predictor=predictor.to(where).eval(),
        method_name=d["method"],
        classes=tuple(d["classes"]),
        image_size=d["image_size"],
        pixel_size=d["pixel_size"],
        rules=rules,
        reject=d["reject"],
        device=where,
        temperature=d["temperature"],
        known=known,
        target=fitted_to,
        reference=reference.to(where) if reference else None,
        origin=origin,
        cache_dir=cache_dir,
    )


def _cache_of(folder: RunFolder) -> Path:
    """Return the cache folder that a run used."""
    try:
        return cache_folder(load_config(folder.config))
    except UserError:  # a model is complete without its configuration
        return default_cache_dir()


def _tables_in(images: Any) -> list[Path]:
    """Return the tables of embeddings among files; other images beside them are an error."""
    items = [images] if isinstance(images, str | Path) else images
    if not isinstance(items, list | tuple):
        return []
    tables = [Path(item) for item in items if isinstance(item, str | Path) and is_table(item)]
    if tables and len(tables) < len(items):
        raise UserError(f"{tables[0]} holds embeddings: pass no images beside it.")
    return tables


def _build_predictor(d: dict[str, Any], tensors: Mapping[str, Tensor]) -> AnyPredictor:
    """Build the modules a description names; the stored tensors take their places."""
    require_known(d["method"], METHODS, "method")
    cls = METHODS[d["method"]]
    backbone = rebuild_backbone(d["backbone"], tensors)
    backbone.pretrained = d.get("pretrained", True)
    settings: Any = from_mapping(cls.Config, d["settings"], d["method"])
    sizes, refiners = Sizes(**d["sizes"]), d["refiners"]
    places = member_backbones(backbone, len(refiners), d["shares_backbone"])
    with torch.device("meta"):  # nothing is allocated
        members = [
            Predictor(cls(settings, place, sizes), Refiner(**config) if config else None)
            for place, config in zip(places, refiners, strict=True)
        ]
        predictor = combine(members, backbone)
    for member in members:
        member.method.drop_training_state()
    return predictor


def _members_of(predictor: AnyPredictor) -> list[Predictor]:
    return list(predictor.members) if isinstance(predictor, Ensemble) else [predictor]


def _training_only(predictor: AnyPredictor) -> set[str]:
    """Names of buffers that no prediction reads."""
    starts = {id(module): name for name, module in predictor.named_modules()}
    return {
        f"{starts[id(member.method)]}.{name}"
        for member in _members_of(predictor)
        for name in member.method.training_only
    }


def _stored_name(name: str) -> str:
    """Name of a tensor in the file: a single method's are at the top, as its backbone's are."""
    return name.removeprefix("method.")


def _module_name(name: str, description: dict[str, Any]) -> str:
    """The inverse of `_stored_name`."""
    is_own = len(description["refiners"]) > 1 or name.startswith("refiner.")
    return name if is_own else f"method.{name}"


def to_predictions(
    paths: Sequence[Path | None],
    scored: Scored,
    rule: Rule,
    classes: tuple[str, ...],
    temperature: float = 1.0,
) -> Iterator[Prediction]:
    """Apply a rule to scored images, one at a time; confidences at that temperature."""
    labels = decide(scored.probs, scored.unknown_score, rule, classes)
    confidences = confidence(scored.probs, temperature)
    rows = zip(paths, labels, confidences, scored.unknown_score, strict=True)
    return (Prediction(path, label, float(c), float(u), rule.name) for path, label, c, u in rows)


def _expand(items: Iterable[OneImage]) -> Iterable[_Item]:
    for item in items:
        if isinstance(item, Image.Image) or callable(item):
            yield item
        elif Path(item).is_dir():
            yield from read_unlabelled(item).paths
        else:
            yield Path(item)
