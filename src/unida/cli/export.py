"""`unida export`: a model as one file that runs without unida."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from unida.cli.parser import Command
from unida.utils.logs import logger


@dataclass(frozen=True)
class Export(Command):
    """Write a trained model as one file that runs without unida.

    Pixels or embeddings go in; labels, probabilities and unknown scores come out.

    Example: unida export runs/first --format onnx --to model.onnx
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a finished run, or a model.safetensors."""
    format: Literal["onnx", "torch"] = "onnx"
    """onnx for onnxruntime and its relatives, torch for plain PyTorch (torch.export)."""
    to: Path | None = None
    """File to write; by default model.onnx or model.pt2 beside the model."""
    reject: str | None = None
    """Reject rule inside: share, own, mixture, none, source[:SHARE] or threshold:VALUE; by default
    the run's. `unida methods` describes them."""

    def execute(self) -> None:
        """Export the model."""
        from unida.decision.rejection import describe_rule
        from unida.export import SUFFIXES, export_model
        from unida.model import load
        from unida.training.run_folder import RunFolder

        run = RunFolder(self.run)
        model_file = run.model if run.path.is_dir() else run.path
        to = self.to or model_file.with_suffix(SUFFIXES[self.format])
        model = load(self.run, "cpu")
        rule = export_model(model, to, self.format, self.reject)
        name = describe_rule(self.reject or model.reject, rule)
        logger.info("%s holds the model and the reject rule %s (%s).", to, name, rule.note)
