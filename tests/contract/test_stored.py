"""What a stored model holds: all that predictions need, and nothing that only training did."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contract.test_contract import CASES
from tests.methods.toys import build
from unida.bench.entries import BenchEntry
from unida.decision.rejection import Rule, own
from unida.methods import Method
from unida.model import Model, load
from unida.types import Outputs, Sizes

SIZES = Sizes(n_classes=4, n_source=1000, n_target=1000, batch=6, steps=8)
IMAGES = torch.rand(5, 3, 16, 16, generator=torch.Generator().manual_seed(1))

pytestmark = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def made(case: BenchEntry, sizes: Sizes = SIZES) -> Any:
    """A method with numbers in every buffer, as if trained."""
    settings = dict(text.split("=") for text in case.settings)
    if case.method == "san":  # its neighbours are stored, a bounded number of them
        settings["neighbours"] = "0"
    method = build(case.method, sizes, **settings).eval()
    for buffer in method.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.1, 1)
    return method


def stored(method: Method, case: BenchEntry, path: Path) -> Path:
    rule: Rule = own(torch.zeros(1).numpy())
    classes = ("a", "b", "c", "d")
    cpu = torch.device("cpu")
    Model(method, case.method, classes, 16, 18, {"own": rule}, "own", cpu).save(path)
    return path


def judged(method: Method) -> Outputs:
    with torch.inference_mode():
        return method.postprocess(method.predict(IMAGES))


def assert_alike(one: torch.Tensor, other: torch.Tensor) -> None:
    """The last bits of numbers hang on where in memory the weights lie."""
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_stored_model_says_the_same(tmp_path: Path, case: BenchEntry) -> None:
    method = made(case)
    loaded = load(stored(method, case, tmp_path / "model.safetensors"), "cpu").method
    before, after = judged(method), judged(loaded)
    for field in dataclasses.fields(Outputs):
        assert_alike(getattr(before, field.name), getattr(after, field.name))
    assert not any(t.is_meta for t in (*loaded.parameters(), *loaded.buffers()))


def test_a_stored_model_can_be_stored_again(tmp_path: Path, case: BenchEntry) -> None:
    first = stored(made(case), case, tmp_path / "first.safetensors")
    load(first, "cpu").save(tmp_path / "second.safetensors")
    assert (tmp_path / "second.safetensors").read_bytes() == first.read_bytes()


def test_a_checkpoint_has_what_only_training_needs(case: BenchEntry) -> None:
    method = made(case)
    assert set(method.training_only) <= set(method.state_dict())


def test_the_file_is_as_large_however_many_images_there_were(
    tmp_path: Path, case: BenchEntry
) -> None:
    more = dataclasses.replace(SIZES, n_source=7000, n_target=9000)
    paths = [
        stored(made(case, sizes), case, tmp_path / f"{sizes.n_target}.safetensors")
        for sizes in (SIZES, more)
    ]
    assert paths[0].stat().st_size == paths[1].stat().st_size


def test_loading_allocates_nothing_for_the_images_of_the_training(
    tmp_path: Path, case: BenchEntry
) -> None:
    method = made(case)
    # With memories for so many images no machine would load it.
    method.sizes = dataclasses.replace(SIZES, n_source=10**12, n_target=10**12)
    loaded = load(stored(method, case, tmp_path / "model.safetensors"), "cpu").method
    assert_alike(judged(loaded).probs, judged(method).probs)
