"""A deployed file predicts as the model does: in PyTorch, in onnxruntime, without this package."""

import ast
import dataclasses
import json
import math
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from torch.nn.modules.batchnorm import _BatchNorm

from tests.images import read_csv
from tests.methods.toys import build
from tests.tasks import Task, labelled
from unida import __version__
from unida.cli.main import main
from unida.data.augmentations import EVAL_VIEW, make_view
from unida.data.pixels import ArrayStore
from unida.decision.calibration import tempered
from unida.decision.inference import fit_target, predict_batches
from unida.decision.predictor import Predictor
from unida.decision.rejection import Rule
from unida.errors import UserError
from unida.export import OUTPUTS, Deployed, Format, export_model
from unida.methods import METHODS
from unida.methods.source_only import SourceOnly, SourceOnlyConfig
from unida.model import Model
from unida.models.backbones import build_backbone
from unida.models.backbones.base import precomputed_features
from unida.pipeline import run_adaptation
from unida.types import Outputs, Sizes

ROOT = Path(__file__).parents[1]
CPU = torch.device("cpu")
CLASSES = ("ant", "bee", "wasp", "größe, „quer“")
SMALL = {"spa": {"words": 64}}
BATCHES = (1, 7, 192)

Arrays = dict[str, np.ndarray[Any, Any]]
Capture = pytest.CaptureFixture[str]
pytestmark = pytest.mark.slow


def wrapped(method: Any, name: str, image_size: int = 16, **more: Any) -> Model:
    rules = {"own": Rule("own", 0.0, "a note")}
    size = image_size + 3  # an odd margin: the middle is not a matter of luck
    predictor = Predictor(method).eval()
    return Model(predictor, name, CLASSES, image_size, size, rules, "own", CPU, **more)


@cache
def toy(name: str, **settings: Any) -> Model:
    """A model with numbers in every buffer, as if trained; it calls some images unknown."""
    method = build(name, **SMALL.get(name, {}), **settings)
    for key, buffer in method.named_buffers():
        place = key.rpartition(".")[2]
        if place == "k":
            buffer.fill_(12)  # clusters in use
        elif place == "match":
            buffer.copy_(torch.arange(len(buffer)) % 8 - 4)  # every second of them a class
        elif buffer.is_floating_point() and not key.startswith("backbone.") and "run" not in key:
            buffer.copy_(torch.rand(buffer.shape))
    return lively(wrapped(method, name))


@torch.no_grad()
def lively(model: Model) -> Model:
    """Fit batch norms to the pictures; the threshold lies in a wide gap between scores."""
    norms = [m for m in model.method.modules() if isinstance(m, _BatchNorm)]
    for norm in norms:
        norm.momentum = 1.0
    images = pictures(model).permute(0, 3, 1, 2)
    model.method.train().predict(make_view(EVAL_VIEW, images, model.image_size, torch.Generator()))
    scores = np.sort(ours(model)["unknown_score"])[50:150]
    widest = np.diff(scores).argmax()
    middle = float(scores[widest : widest + 2].mean())
    return dataclasses.replace(model, rules={"own": Rule("own", middle, "a note")})


def pictures(model: Model, n: int = sum(BATCHES)) -> torch.Tensor:
    """Images of noise that differ in brightness and colour."""
    draws = torch.Generator().manual_seed(3)
    side = model.pixel_size
    grain = torch.rand(n, side, side, 3, generator=draws)
    tint = torch.rand(n, 1, 1, 3, generator=draws)
    return (255 * grain * tint).to(torch.uint8)


def ours(model: Model, reject: str | None = None) -> Arrays:
    """What `Model.predict` builds on, of all pictures at once."""
    images = pictures(model).permute(0, 3, 1, 2)
    scored = predict_batches(model.predictor, [images], len(images), model.image_size, CPU)
    unknown = model.rule(reject).is_unknown(scored.unknown_score)
    label = np.where(unknown, len(model.classes), scored.probs.argmax(1))
    probs = tempered(scored.probs, model.temperature)
    return dict(zip(OUTPUTS, (label, probs, scored.unknown_score), strict=True))


def in_batches(model: Model, outputs_of: Callable[[torch.Tensor], Arrays]) -> Arrays:
    parts = [outputs_of(part) for part in pictures(model).split(BATCHES)]
    return {name: np.concatenate([part[name] for part in parts]) for name in OUTPUTS}


def by_onnx(model: Model, to: Path) -> Arrays:
    session = onnxruntime.InferenceSession(to)

    def outputs_of(images: torch.Tensor) -> Arrays:
        found = session.run(None, {"images": images.numpy()})
        return dict(zip([o.name for o in session.get_outputs()], found, strict=True))

    return in_batches(model, outputs_of)


def by_torch(model: Model, to: Path) -> Arrays:
    program = torch.export.load(to).module()
    with torch.inference_mode():
        return in_batches(model, lambda x: {k: v.numpy() for k, v in program(x).items()})


READERS: dict[Format, Callable[[Model, Path], Arrays]] = {"onnx": by_onnx, "torch": by_torch}


def assert_same(theirs: Arrays, expected: Arrays) -> None:
    assert list(theirs["label"]) == list(expected["label"])
    for name in ("probabilities", "unknown_score"):
        np.testing.assert_allclose(theirs[name], expected[name], rtol=0, atol=1e-4)
    assert theirs["label"].dtype == np.int64
    assert theirs["probabilities"].dtype == theirs["unknown_score"].dtype == np.float32


def assert_both_files_agree(model: Model, folder: Path, n_classes: int = 2) -> None:
    expected = ours(model)
    known = set(expected["label"]) - {len(CLASSES)}
    assert len(known) >= n_classes
    assert len(CLASSES) in expected["label"]
    for kind, read in READERS.items():
        export_model(model, folder / kind, kind)
        assert_same(read(model, folder / kind), expected)


SIZES = Sizes(n_classes=4, n_source=40, n_target=24, batch=6, steps=8)


@pytest.fixture(scope="module")
def san(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with SAN in both formats."""
    folder = tmp_path_factory.mktemp("san")
    for kind in READERS:
        (folder / kind).write_text("something else, to be written over")
    assert_both_files_agree(toy("san"), folder)
    return folder


@pytest.mark.parametrize(
    "name", [n for n, m in METHODS.items() if not m.about.transductive and n != "san"]
)
def test_both_files_predict_as_the_model_does(name: str, tmp_path: Path) -> None:
    """Of `san` as well: the fixture above."""
    model = toy(name)
    if name == "source_only":  # one end of what is ever fitted; the other is below
        plain, model = model, dataclasses.replace(model, temperature=20.0)
        assert not np.allclose(ours(model)["probabilities"], ours(plain)["probabilities"])
    assert_both_files_agree(model, tmp_path)


@torch.no_grad()
def test_refinement_is_in_both_files(tmp_path: Path) -> None:
    plain = lively(wrapped(build("san"), "san"))
    images = pictures(plain).permute(0, 3, 1, 2)
    target, source = ArrayStore(images[:150]), labelled(images[150:])
    fitted = fit_target(plain.method, target, source, 16, "knn")
    assert fitted.predictor.refiner is not None
    model = lively(dataclasses.replace(plain, predictor=fitted.predictor))
    assert not np.allclose(ours(model)["unknown_score"], ours(plain)["unknown_score"])
    assert_both_files_agree(model, tmp_path, n_classes=1)


def test_a_rule_that_rejects_nothing_is_in_both_files(tmp_path: Path) -> None:
    model = toy("source_only")
    model = dataclasses.replace(model, rules={"own": Rule("none", math.inf, "a note")})
    for kind, read in READERS.items():
        export_model(model, tmp_path / kind, kind)
        theirs = read(model, tmp_path / kind)
        assert_same(theirs, ours(model))
        assert len(CLASSES) not in theirs["label"]
    assert about_torch(tmp_path / "torch")["threshold"] == "inf"


def test_a_resnet_predicts_the_same(tmp_path: Path) -> None:
    torch.manual_seed(0)
    method = SourceOnly(SourceOnlyConfig(), build_backbone("resnet18", "none"), SIZES)
    assert_both_files_agree(lively(wrapped(method, "source_only", 32)), tmp_path)


def test_a_model_of_transformers_predicts_the_same(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    shape = {"image_size": 32, "hidden_size": 24, "intermediate_size": 24, "patch_size": 8}
    depth = {"num_hidden_layers": 2, "num_attention_heads": 3, "initializer_range": 0.5}
    config = transformers.ViTConfig(**depth, **shape)
    torch.manual_seed(0)
    transformers.ViTModel(config).save_pretrained(tmp_path / "vit")
    method = SourceOnly(SourceOnlyConfig(), build_backbone(f"hf:{tmp_path / 'vit'}", None), SIZES)
    assert_both_files_agree(lively(wrapped(method, "source_only", 16)), tmp_path)


def test_a_low_temperature_is_in_the_file(tmp_path: Path) -> None:
    model = dataclasses.replace(toy("source_only"), temperature=0.05)
    export_model(model, tmp_path / "file", "torch")
    assert_same(by_torch(model, tmp_path / "file"), ours(model))


class TestTheFile:
    def test_what_is_in_it_is_written_in_it(self, san: Path) -> None:
        model = toy("san")
        session = onnxruntime.InferenceSession(san / "onnx")
        about = session.get_modelmeta().custom_metadata_map
        assert json.loads(about["labels"]) == [*CLASSES, "unknown"]
        assert int(about["size"]) == model.pixel_size
        assert (about["method"], about["rule"]) == ("san", "own")
        assert float(about["threshold"]) == model.rule().threshold
        assert about["unida"] == __version__
        assert "(batch, 19, 19, 3)" in about["input"]
        (images,) = session.get_inputs()
        assert (images.name, images.type) == ("images", "tensor(uint8)")
        assert images.shape == ["batch", 19, 19, 3]

        metadata = about_torch(san / "torch")
        words = {k: v if isinstance(v, str) else json.dumps(v) for k, v in metadata.items()}
        assert words == about

    def test_nothing_else_is_in_it_or_beside_it(self, san: Path) -> None:
        assert {path.name for path in san.iterdir()} == set(READERS)
        for kind in READERS:
            assert str(ROOT).encode() not in (san / kind).read_bytes()


def about_torch(file: Path) -> dict[str, Any]:
    """What is written in a program of torch.export."""
    extra = {"unida.json": ""}
    torch.export.load(file, extra_files=extra)
    return dict(json.loads(extra["unida.json"]))


def test_a_score_at_the_threshold_or_no_number_at_all_is_unknown() -> None:
    """The same result as `Rule.is_unknown`, in double precision."""
    scores = torch.tensor([0.1, 0.1, math.nan, -1.0])

    class Fixed(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> Any:
            probs = torch.tensor([[0.2, 0.8]]).repeat(4, 1)
            return Outputs(probs, scores, probs)

    model: Any = dataclasses.replace(toy("source_only"), predictor=Fixed())  # type: ignore[arg-type]
    images = torch.zeros(4, 19, 19, 3, dtype=torch.uint8)
    for threshold in (float(scores[0]), 0.1):  # 0.1 in single precision is a little above 0.1
        rule = Rule("own", threshold, "")
        expected = np.where(rule.is_unknown(scores.double().numpy()), 2, 1)
        assert Deployed(model, rule)(images)["label"].tolist() == expected.tolist()


@pytest.mark.parametrize("kind", ["onnx", "torch"])
def test_a_model_of_embeddings_takes_embeddings(tmp_path: Path, kind: Format) -> None:
    method = SourceOnly(SourceOnlyConfig(), precomputed_features(5), SIZES)
    model, file = wrapped(method, "source_only"), tmp_path / "model"
    model = dataclasses.replace(model, rules={"own": Rule("own", -0.4, "a note")})
    export_model(model, file, kind)
    rows = torch.randn(9, 5, generator=torch.Generator().manual_seed(0))
    if kind == "onnx":
        session = onnxruntime.InferenceSession(file)
        label, _, score = session.run(None, {"embeddings": rows.numpy()})
        about = session.get_modelmeta().custom_metadata_map
        assert about["input"].startswith("embeddings: float32 (batch, 5)")
        assert about["width"] == "5"
    else:
        found = torch.export.load(file).module()(rows)
        label, score = (found[name].detach().numpy() for name in ("label", "unknown_score"))
    expected = model.predict(rows)
    names = [*CLASSES, "unknown"]
    assert [names[k] for k in label] == [p.label for p in expected]
    np.testing.assert_allclose(score, [p.unknown_score for p in expected], atol=1e-5)


class TestRefusals:
    def test_a_transductive_method_is_refused_with_the_reason(self, tmp_path: Path) -> None:
        model = wrapped(build("uniot"), "uniot")
        with pytest.raises(UserError, match="uniot labels a set of images as a whole"):
            export_model(model, tmp_path / "a.onnx")
        assert not list(tmp_path.iterdir())

    def test_onnx_without_its_packages(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(UserError, match=r"extra 'export': pip install onnx"):
            export_model(toy("source_only"), tmp_path / "a.onnx")

    def test_a_model_too_large_for_one_onnx_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("unida.export.ONNX_LIMIT", 1000)
        with pytest.raises(UserError, match="--format torch"):
            export_model(toy("source_only"), tmp_path / "a.onnx")


@pytest.fixture(scope="module")
def run(digits: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export") / "run"
    run_adaptation(digits.config(out, steps=40, report=False))
    return out


@pytest.fixture(scope="module")
def files(digits: Task, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """PNG files of the task, a colour photograph on its side, and a large JPEG."""
    folder = tmp_path_factory.mktemp("files")
    photo = Image.effect_mandelbrot((300, 200), (-2, -1, 1, 1), 60).convert("RGB")
    turned = Image.Exif()
    turned[0x0112] = 6  # orientation: a quarter turn
    photo.save(folder / "turned.jpg", exif=turned)
    photo.resize((3000, 2000)).save(folder / "large.jpg")
    return [*sorted(digits.target.rglob("*.png"))[::9], *sorted(folder.iterdir())]


class TestCommand:
    def test_a_moved_model_and_another_rule(self, run: Path, tmp_path: Path) -> None:
        moved = tmp_path / "moved.safetensors"
        moved.write_bytes((run / "model.safetensors").read_bytes())
        assert main(["export", str(moved), "--format", "torch", "--reject", "own"]) == 0
        about = about_torch(tmp_path / "moved.pt2")
        assert (about["rule"], about["threshold"]) == ("own", 0.0)

    @pytest.mark.parametrize(
        ("kind", "name", "script"),
        [("onnx", "model.onnx", "use_onnx.py"), ("torch", "model.pt2", "use_torch.py")],
    )
    def test_an_example_without_this_package_predicts_as_predict_does(
        self,
        run: Path,
        files: list[Path],
        tmp_path: Path,
        capfd: Capture,
        kind: str,
        name: str,
        script: str,
    ) -> None:
        """The file lies beside the model unless another place is named."""
        assert main(["export", str(run), "--format", kind]) == 0
        assert str(run / name) in capfd.readouterr().err
        labels = tmp_path / "labels.csv"
        assert main(["predict", str(run), *map(str, files), "--to", str(labels)]) == 0
        # Whoever imports `unida` in the example finds this one.
        (tmp_path / "shadow").mkdir()
        (tmp_path / "shadow" / "unida.py").write_text("raise ImportError('not needed')\n")
        command = [sys.executable, ROOT / "examples" / script, run / name, *files]
        env = os.environ | {"PYTHONPATH": str(tmp_path / "shadow")}
        done = subprocess.run(
            list(map(str, command)),
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
            env=env,
        )
        shown = [line.split("\t") for line in done.stdout.splitlines()]
        expected = read_csv(labels)
        assert [row[:2] for row in shown] == [[row["path"], row["label"]] for row in expected]
        for row, ours in zip(shown, expected, strict=True):
            assert float(row[2]) == pytest.approx(float(ours["confidence"]), abs=1e-4)


def test_an_example_imports_its_named_packages_only() -> None:
    for script in (ROOT / "examples").glob("use_*.py"):
        tree = ast.parse(script.read_text())
        names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        names |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        assert names <= {"json", "sys", "numpy", "onnxruntime", "torch", "PIL"}, script


def test_no_onnx_with_known_holes_is_allowed() -> None:
    """Before 1.21, a model file may read others through links (CVE-2026-27489)."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (onnx,) = (one for one in extras["optional-dependencies"]["export"] if re.match("onnx>", one))
    assert tuple(map(int, re.findall(r"\d+", onnx))) >= (1, 21)
