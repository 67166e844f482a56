"""A trained model as one file that runs without this package: pixels or embeddings in, labels out.

The file holds the evaluation view, the network, its refinement and the reject rule. Decoding,
turning upright and resizing to a square are left to its user.
"""

import importlib.util
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule

from unida import __version__
from unida.data.augmentations import EVAL_VIEW, make_view
from unida.decision.calibration import LEAST
from unida.decision.rejection import Rule
from unida.errors import UserError
from unida.model import Model
from unida.training.run_folder import write_file
from unida.types import UNKNOWN

Format = Literal["onnx", "torch"]

SUFFIXES: dict[Format, str] = {"onnx": ".onnx", "torch": ".pt2"}
OUTPUTS = ("label", "probabilities", "unknown_score")
ABOUT = "unida.json"
"""Name of the description inside a torch file; an ONNX file has it as metadata."""

ONNX_LIMIT = 2**31 - 2**24
"""Bytes of weights one ONNX file can hold, with room for the graph."""


class Deployed(nn.Module):
    """What the file holds: uint8 images (B, S, S, 3) → the three `OUTPUTS`, by name.

    `label` is the number of a known class or, from the threshold on, the number of classes.
    """

    threshold: Tensor

    def __init__(self, model: Model, rule: Rule) -> None:
        super().__init__()
        self.predictor, self.image_size = model.predictor, model.image_size
        self.temperature = model.temperature
        # In double precision, as `Rule.is_unknown` compares.
        self.register_buffer("threshold", torch.tensor(rule.threshold, dtype=torch.float64))

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        pixels = images.permute(0, 3, 1, 2)
        return self._label(make_view(EVAL_VIEW, pixels, self.image_size, torch.Generator()))

    def _label(self, inputs: Tensor) -> dict[str, Tensor]:
        outputs = self.predictor(inputs)
        known = outputs.unknown_score.double() < self.threshold
        label = torch.where(known, outputs.probs.argmax(1), outputs.probs.shape[1])
        probs = self._tempered(outputs.probs)
        return dict(zip(OUTPUTS, (label, probs, outputs.unknown_score), strict=True))

    def _tempered(self, probs: Tensor) -> Tensor:
        """The same as `unida.decision.calibration.tempered`, which is for arrays."""
        if self.temperature == 1:
            return probs
        return (probs.double().clamp_min(LEAST).log() / self.temperature).softmax(1).float()


class DeployedHeads(Deployed):
    """The same of a model that was trained on embeddings: float32 (B, D) in the place of images."""

    def forward(self, embeddings: Tensor) -> dict[str, Tensor]:
        return self._label(embeddings)


def export_model(model: Model, to: Path, kind: Format = "onnx", reject: str | None = None) -> Rule:
    """Writes a model as one file.

    Args:
        model: on the CPU.
        to: a file; one that is there is written over.
        kind: `onnx`, or `torch` for a program of torch.export.
        reject: the rule inside, by name; by default the model's.

    Returns:
        The rule inside.
    """
    if model.method.about.transductive:
        raise UserError(
            f"{model.method_name} labels a set of images as a whole (it is transductive): a file "
            "that labels images batch by batch would give other labels, so there is none."
        )
    rule = model.rule(reject)
    about = describe(model, rule)
    with _quiet():
        program = _program(model, rule)
        name = _input_name(model)
        onnx = kind == "onnx"
        write_file(to, _as_onnx(program, about, name) if onnx else _as_torch(program, about))
    return rule


def describe(model: Model, rule: Rule) -> dict[str, Any]:
    """Describe the file for its user; stored in it."""
    size, width = model.pixel_size, model.backbone.out_features
    if model.backbone.is_precomputed:
        of_input: dict[str, Any] = {
            "width": width,
            "input": f"embeddings: float32 (batch, {width}), as the model was trained on",
        }
    else:
        of_input = {
            "size": size,
            "input": f"images: uint8 RGB (batch, {size}, {size}, 3), upright, squeezed to a square "
            "with bilinear resampling as Pillow does it",
        }
    return {
        "labels": [*model.classes, UNKNOWN],
        **of_input,
        "method": model.method_name,
        "rule": rule.name,
        "threshold": rule.to_json()["threshold"],
        "note": rule.note,
        "temperature": model.temperature,
        "unida": __version__,
    }


def _program(model: Model, rule: Rule) -> ExportedProgram:
    """The computation by itself, for any number of images or embeddings."""
    if model.backbone.is_precomputed:
        deployed: Deployed = DeployedHeads(model, rule)
        some = torch.zeros(2, model.backbone.out_features)
    else:
        deployed = Deployed(model, rule)
        some = torch.zeros(2, model.pixel_size, model.pixel_size, 3, dtype=torch.uint8)
    shapes = {_input_name(model): {0: Dim("batch", min=1)}}
    with torch.no_grad():
        program = torch.export.export(deployed.eval(), (some,), dynamic_shapes=shapes)
    parts = (part for part in program.graph_module.modules() if isinstance(part, GraphModule))
    for node in (node for part in parts for node in part.graph.nodes):
        node.meta.pop("stack_trace", None)  # folders of this machine are nobody's business
    return program


def _input_name(model: Model) -> str:
    """Return the name of the parameter of `forward`."""
    return "embeddings" if model.backbone.is_precomputed else "images"


def _as_torch(program: ExportedProgram, about: dict[str, Any]) -> Callable[[BinaryIO], None]:
    extra = {ABOUT: json.dumps(about, indent=2)}
    return lambda file: torch.export.save(program, file, extra_files=extra)


def _as_onnx(
    program: ExportedProgram, about: dict[str, Any], name: str
) -> Callable[[BinaryIO], int]:
    if importlib.util.find_spec("onnxscript") is None:
        raise UserError(
            "ONNX files need the extra 'export': pip install onnx onnxscript onnxruntime."
        )
    tensors = program.state_dict.values()
    if sum(t.numel() * t.element_size() for t in tensors) > ONNX_LIMIT:
        raise UserError("The model is too large for one ONNX file (2 GB): use --format torch.")
    made = torch.onnx.export(
        program,
        input_names=[name],
        output_names=list(OUTPUTS),
        dynamic_shapes={name: {0: "batch"}},  # only the name is taken: the program has them
        external_data=False,
        verbose=False,
    )
    assert made is not None
    words = {name: v if isinstance(v, str) else json.dumps(v) for name, v in about.items()}
    made.model.metadata_props.update(words)
    content = made.model_proto.SerializeToString()
    return lambda file: file.write(content)


@contextmanager
def _quiet() -> Iterator[None]:
    """Torch's exporter talks about packages that nobody needs here."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
