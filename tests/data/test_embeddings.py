"""Frozen backbones: images are embedded once, heads are trained on that."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.images import read_csv, write_folder
from tests.tasks import Task
from unida import load
from unida.config import CacheMode, RunConfig
from unida.data.augmentations import EVAL_VIEW, WEAK_VIEW, make_view, strong_view
from unida.data.domain import Domain
from unida.data.embeddings import EmbeddingCache, embed, embed_shard
from unida.data.pixels import ArrayStore, load_pixels
from unida.data.samples import Samples, read_unlabelled
from unida.errors import UserError
from unida.methods import METHODS
from unida.models.backbones import build_backbone
from unida.models.backbones.base import Backbone
from unida.pipeline import make_backbone, run, run_adaptation
from unida.utils import distributed

CPU = torch.device("cpu")
SPLIT = EmbeddingCache.split


def config(cache: Path, **options: Any) -> RunConfig:
    values: dict[str, Any] = {"image_size": 16, "frozen": True, "frozen_views": 3}
    return RunConfig.from_flat(cache_dir=str(cache), **(values | options))


def noise_domain(n: int = 70) -> Domain:
    draws = torch.Generator().manual_seed(1)
    pixels = torch.randint(256, (n, 3, 18, 18), dtype=torch.uint8, generator=draws)
    return Domain(Samples(tuple(Path(f"{i}.png") for i in range(n))), ArrayStore(pixels), CPU)


def small_backbone(seed: int = 0) -> Backbone:
    torch.manual_seed(seed)
    return build_backbone("small_cnn", None)


def quietly(done: int, total: int) -> None:
    assert 0 < done <= total


def test_embeddings_are_features_of_the_views(tmp_path: Path) -> None:
    domain, backbone = noise_domain(), small_backbone()
    rows = embed(domain, backbone, (WEAK_VIEW,), config(tmp_path), quietly).pixels.get(
        torch.arange(70)
    )
    assert rows.shape == (70, 4, backbone.out_features)
    with torch.no_grad():
        plain = make_view(EVAL_VIEW, domain.images(torch.arange(70)), 16, torch.Generator())
        torch.testing.assert_close(rows[:, 0], backbone(plain), rtol=1e-4, atol=1e-5)
    augmented = rows[:, 1:]
    assert (augmented - rows[:, :1]).abs().amax((1, 2)).min() > 1e-4  # no view is the plain one
    assert (augmented[:, 0] - augmented[:, 1]).abs().amax(1).median() > 1e-4


def test_the_second_run_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    domain, backbone = noise_domain(), small_backbone()
    first = embed(domain, backbone, (WEAK_VIEW,), config(tmp_path), quietly)
    monkeypatch.setattr(Backbone, "forward", lambda self, x: pytest.fail("embedded again"))
    again = embed(domain, backbone, (WEAK_VIEW,), config(tmp_path), quietly)
    index = torch.arange(70)
    assert torch.equal(first.pixels.get(index), again.pixels.get(index))


def test_each_process_embeds_whole_chunks_of_its_own_and_the_file_takes_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain, backbone, plain = noise_domain(150), small_backbone(), config(tmp_path, frozen_views=0)
    alone = embed(domain, backbone, (), config(tmp_path / "alone", frozen_views=0), quietly)
    seen: list[list[int]] = []
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    for rank in (0, 1):
        seen.append([])
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        embed_shard(domain, backbone, plain, lambda done, total: seen[-1].append(total))
    assert [set(totals) for totals in seen] == [{64}, {86}]
    monkeypatch.setattr(Backbone, "forward", lambda self, x: pytest.fail("embedded again"))
    shared = embed(domain, backbone, (), plain, quietly)
    index = torch.arange(150)
    assert torch.equal(shared.pixels.get(index), alone.pixels.get(index))


@pytest.mark.parametrize("change", ["view", "views", "weights", "images", "flip", "precision"])
def test_everything_embeddings_depend_on_makes_another_file(tmp_path: Path, change: str) -> None:
    domain = noise_domain()
    embed(domain, small_backbone(), (WEAK_VIEW,), config(tmp_path), quietly)
    backbone = small_backbone(1 if change == "weights" else 0)
    backbone.cpu_precision = "bf16" if change == "precision" else "fp32"
    embed(
        noise_domain(69) if change == "images" else domain,
        backbone,
        (strong_view(0.7),) if change == "view" else (WEAK_VIEW,),
        config(
            tmp_path,
            frozen_views=2 if change == "views" else 3,
            flip=change != "flip",
        ),
        quietly,
    )
    assert len(list(tmp_path.glob("*.f32"))) == 2


def test_another_seed_uses_the_same_embeddings(tmp_path: Path) -> None:
    for seed in (0, 1):
        embed(noise_domain(), small_backbone(), (WEAK_VIEW,), config(tmp_path, seed=seed), quietly)
    assert len(list(tmp_path.glob("*.f32"))) == 1


def test_images_of_another_domain_are_not_embedded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, backbone, whole = config(tmp_path, frozen_views=0), small_backbone(), noise_domain(150)
    some = whole.part(np.array([140, 3, 3, 77, 20]))
    alone = embed(some, backbone, (WEAK_VIEW,), config(tmp_path / "other", frozen_views=0), quietly)
    embedded: list[int] = []
    forward = Backbone.forward

    def count(self: Backbone, images: torch.Tensor) -> torch.Tensor:
        embedded.append(len(images))
        return forward(self, images)

    monkeypatch.setattr(Backbone, "forward", count)
    embed(whole.part(np.arange(60, 150)), backbone, (WEAK_VIEW,), plain, quietly)
    assert sum(embedded) == 90
    found = embed(some, backbone, (), plain, quietly)  # whatever the views: none is drawn
    assert sum(embedded) == 90 + 3  # 3, 3 and 20
    assert len(list(tmp_path.glob("*.rows"))) == 2
    torch.testing.assert_close(
        found.pixels.get(torch.arange(5)), alone.pixels.get(torch.arange(5)), rtol=1e-4, atol=1e-5
    )


def test_an_interrupted_run_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unida.data.embeddings._CHUNK", 8)
    monkeypatch.setattr("unida.data.embeddings._PART", 3)
    domain, backbone, given = noise_domain(), small_backbone(), config(tmp_path, frozen_views=0)

    def stop(done: int, total: int) -> None:
        if done > 50:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed(domain, backbone, (), given, stop)
    embedded: list[int] = []
    forward = Backbone.forward
    monkeypatch.setattr(
        Backbone, "forward", lambda self, x: (embedded.append(len(x)), forward(self, x))[1]
    )
    rows = embed(domain, backbone, (), given, quietly).pixels.get(torch.arange(70))
    assert sum(embedded) == 70 - 48  # two parts of three times eight were there
    whole = embed(domain, backbone, (), config(tmp_path / "b", frozen_views=0), quietly)
    assert torch.equal(rows, whole.pixels.get(torch.arange(70)))
    assert {len(list(tmp_path.glob(f"*.{kind}"))) for kind in ("f32", "rows")} == {1}


@pytest.mark.parametrize("change", ["weights", "size", "drawn views", "damage"])
def test_only_embeddings_of_the_same_network_are_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    views = 1 if change == "drawn views" else 0
    embed(
        noise_domain(),
        small_backbone(),
        (WEAK_VIEW,),
        config(tmp_path, frozen_views=views),
        quietly,
    )
    if change == "damage":
        (file,) = tmp_path.glob("*.f32")
        file.write_bytes(file.read_bytes()[:-4])
    monkeypatch.setattr(EmbeddingCache, "split", lambda self, images: noted(self, images))
    taken: list[int] = []

    def noted(self: EmbeddingCache, images: torch.Tensor) -> tuple[torch.Tensor, list[Any]]:
        new, known = SPLIT(self, images)
        taken.append(len(known))
        return new, known

    embed(
        noise_domain(69),
        small_backbone(1 if change == "weights" else 0),
        (WEAK_VIEW,),
        config(tmp_path, frozen_views=views, image_size=12 if change == "size" else 16),
        quietly,
    )
    assert taken
    assert not any(taken)


@pytest.mark.parametrize("mode", ["memory", "disk", "stream"])
def test_no_pixel_is_read_where_the_content_of_the_files_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: CacheMode
) -> None:
    samples = read_unlabelled(write_folder(tmp_path / "images", 5))
    cache = tmp_path / "cache"
    for _ in range(2):
        kept, pixels = load_pixels(samples, 18, mode, cache, quietly)
        embed(Domain(kept, pixels, CPU), small_backbone(), (WEAK_VIEW,), config(cache), quietly)
        monkeypatch.setattr(type(pixels), "get", lambda *_: pytest.fail("read"))
    assert len(list(cache.glob("*.f32"))) == 1


def test_the_same_pixels_of_other_files_make_another_file(tmp_path: Path) -> None:
    pixels = noise_domain().pixels.get(torch.arange(70))
    for key in ("one", "two", None):
        domain = Domain(noise_domain().samples, ArrayStore(pixels, key), CPU)
        embed(domain, small_backbone(), (WEAK_VIEW,), config(tmp_path), quietly)
    assert len(list(tmp_path.glob("*.f32"))) == 3


def test_what_another_process_writes_of_the_same_images_stays(tmp_path: Path) -> None:
    """Two runs that embed one domain at a time: the first to end removes its own parts alone."""
    backbone = small_backbone()
    embed(noise_domain(), backbone, (WEAK_VIEW,), config(tmp_path), quietly)
    (file,) = tmp_path.glob("*.f32")
    file.unlink()
    (under_way := file.with_name(f"{file.stem}-16.f32.0a1b.part")).touch()
    embed(noise_domain(), backbone, (WEAK_VIEW,), config(tmp_path), quietly)
    assert under_way.exists()
    assert list(tmp_path.glob("*.f32")) == [file]


def test_an_incomplete_file_is_made_again(tmp_path: Path) -> None:
    domain, backbone = noise_domain(), small_backbone()
    whole = embed(domain, backbone, (WEAK_VIEW,), config(tmp_path), quietly).pixels.get(
        torch.arange(70)
    )
    whole = whole.clone()
    (file,) = tmp_path.glob("*.f32")
    file.write_bytes(file.read_bytes()[:1000])
    again = embed(domain, backbone, (WEAK_VIEW,), config(tmp_path), quietly)
    assert torch.equal(again.pixels.get(torch.arange(70)), whole)


@pytest.mark.parametrize("frozen_views", [0, 3])
def test_zeroed_embeddings_are_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, frozen_views: int
) -> None:
    given, index = config(tmp_path, frozen_views=frozen_views), torch.arange(70)
    first = embed(noise_domain(), small_backbone(), (WEAK_VIEW,), given, quietly)
    rows = first.pixels.get(index)
    (file,) = tmp_path.glob("*.f32")
    zeros = bytes(file.stat().st_size)
    file.unlink()  # what is mapped stays
    file.write_bytes(zeros)
    again = embed(noise_domain(), small_backbone(), (WEAK_VIEW,), given, quietly)
    torch.testing.assert_close(again.pixels.get(index), rows, rtol=1e-4, atol=1e-5)
    assert caplog.text.count("is damaged: it is made anew") == 1


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--cache-dir"):
        embed(noise_domain(), small_backbone(), (), config(tmp_path / "file"), quietly)


def test_a_view_of_embeddings_is_one_of_those_stored() -> None:
    rows = torch.arange(4.0)[None, :, None].expand(2000, 4, 2)
    draws = torch.Generator().manual_seed(0)
    assert make_view(EVAL_VIEW, rows, 16, draws).eq(0).all()
    picked = make_view(strong_view(0.7), rows, 16, draws)[:, 0]
    counts = torch.bincount(picked.long(), minlength=4)
    assert counts.min() > 2000 / 4 - 100  # evenly, within five standard deviations


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Embeddings of the digits, computed once for all methods with the same views."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("method", [name for name in METHODS if name != "spa"])
def test_every_method_trains_its_heads_alone(
    digits: Task, out: Path, shared_cache: str, method: str
) -> None:
    options = {"frozen": True, "frozen_views": 2, "cache_dir": shared_cache, "steps": 2}
    run = digits.config(out, method=method, **options)
    run_adaptation(run)
    model, fresh = load(out, "cpu"), make_backbone(run).state_dict()
    for name, tensor in model.method.backbone.state_dict().items():
        assert torch.equal(tensor, fresh[name]), name
    # Predictions from images equal those from embeddings.
    scores = [float(row["unknown_score"]) for row in read_csv(out / "predictions.csv")]
    found = [p.unknown_score for p in model.predict(digits.target)]
    np.testing.assert_allclose(found, scores, rtol=1e-3, atol=1e-4)


def test_a_frozen_run_resumes_to_the_same_bits(digits: Task, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    options = {"frozen": True, "frozen_views": 2, "cache_dir": cache, "checkpoint_every": 4}

    class KilledError(Exception):
        pass

    def kill(step: int, method: object) -> None:
        if step == 4:
            raise KilledError

    whole = run_adaptation(digits.config(tmp_path / "whole", steps=8, **options))
    cut = digits.config(tmp_path / "cut", steps=8, **options)
    with pytest.raises(KilledError):
        run(cut, on_checkpoint=kill)
    again = run_adaptation(cut, resume=True)
    for name, tensor in whole.method.state_dict().items():
        assert torch.equal(tensor, again.method.state_dict()[name]), name


def test_a_method_that_needs_feature_maps_is_refused(digits: Task, out: Path) -> None:
    run = digits.config(out, method="spa", frozen=True, cache_dir=str(out.parent / "cache"))
    with pytest.raises(UserError, match="without --frozen"):
        run_adaptation(run)
    assert not out.exists()
