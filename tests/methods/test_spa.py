"""SPA: docs/methods/spa.md, how it sits on DCC and OVANet, words, pretext task, settings."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.methods.toys import SIZES, build, noise, train
from tests.tasks import Task, assert_alike
from unida.errors import UserError
from unida.losses import assignment_entropy, word_usage
from unida.methods.spa import SPA, SPAConfig
from unida.model import load
from unida.models.backbones.base import Backbone
from unida.ops.mixing import draw_mosaics, make_mosaics
from unida.ops.visual_words import word_histogram, word_logits
from unida.pipeline import run_adaptation
from unida.types import Sizes

SMALL = {"words": 12, "width": 8}
IMAGES = torch.rand(5, 3, 16, 16, generator=torch.Generator().manual_seed(1))

both = pytest.mark.parametrize("base", ["dcc", "ovanet"])


def make(base: str = "ovanet", **settings: Any) -> Any:
    return build("spa", base=base, **(SMALL | settings))


class Extractor:
    """As the loop's: passes noise through the method's backbone."""

    def __init__(self, method: Any) -> None:
        self.method, self.source_labels = method, torch.arange(40) % 4
        self.requested: list[Tensor] = []

    def __call__(
        self, domain: str, index: Tensor | None = None, through: nn.Module | None = None
    ) -> Tensor:
        g = torch.Generator().manual_seed(len(domain) + ord(domain[0]))
        sizes = self.method.sizes
        n = {"source": sizes.n_source, "target": sizes.n_target}[domain]
        images = torch.rand(n, 3, 16, 16, generator=g)
        if index is not None:
            self.requested.append(index)
            images = images[index]
        rows = torch.cat([self.method.backbone(part) for part in torch.split(images, 16)])
        return through(rows) if through else rows


def refreshed(method: Any, step: int = 0) -> Any:
    method.eval()
    with torch.no_grad():
        method.refresh(Extractor(method), step)
    return method.train()


def test_the_base_gets_the_backbone_s_features_and_the_histogram_s() -> None:
    method = make().eval()
    plain = build("source_only").backbone.eval()
    plain.load_state_dict(method.backbone.state_dict())
    with torch.no_grad():
        features = method.backbone(IMAGES)
        middle = F.normalize(plain.forward_features(IMAGES))
        h = word_histogram(word_logits(middle, F.normalize(method.words), 0.1))
        expected = torch.cat([plain(IMAGES), method.project(12 * h)], 1)
    torch.testing.assert_close(features, expected)
    assert method.backbone.out_features == 128 + 8
    assert method.base.backbone is method.backbone


@both
def test_predictions_are_the_base_s(base: str) -> None:
    method = make(base).eval()
    with torch.no_grad():
        mine, its = method.predict(IMAGES), method.base.predict(IMAGES)
    for field in ("probs", "unknown_score", "features"):
        assert getattr(mine, field).equal(getattr(its, field))


def test_the_histogram_alone_may_be_used() -> None:
    method = refreshed(make("ovanet", use="instead"))
    assert method.backbone.out_features == 8
    reached = train(method)
    assert {n for n, _ in method.named_parameters()} - reached == {
        f"backbone.net.features.{n}" for n in ("1.weight", "2.weight", "2.bias")
    }


@both
def test_the_state_holds_everything_once(base: str) -> None:
    method = make(base)
    state = method.state_dict()
    places = [value.data_ptr() for value in state.values() if value.numel()]
    assert len(set(places)) == len(places)
    assert not [name for name in state if name.startswith("base.backbone")]
    of_groups = [p for group in method.head_groups() for p in group.parameters]
    everything = [*method.backbone.parameters(), *of_groups]
    assert {id(p) for p in everything} == {id(p) for p in method.parameters()}
    assert len(everything) == len(list(method.parameters()))


@both
def test_the_losses_are_the_base_s_and_four_more(base: str) -> None:
    at_once = "warmup=0,q=2" if base == "dcc" else ""
    method = refreshed(make(base, base_set=at_once, lam_p=0.7, lam_e=0.3, lam_m=0.2))
    batch = noise(method, 0)
    requested = method.extra(0, torch.Generator().manual_seed(0))
    assert len(requested) == (3 if base == "dcc" else 0)
    batch = dataclasses.replace(
        batch, extra={k: torch.rand(len(n), 3, 16, 16) for k, (_, n) in requested.items()}
    )
    before = {name: value.clone() for name, value in method.state_dict().items()}
    torch.manual_seed(5)
    with torch.no_grad():
        terms = method.losses(batch)
        method.load_state_dict(before)
        its = method.base.losses(batch)
        logits, method._logits = torch.cat(method._logits), []
        torch.manual_seed(5)
        pretext = []
        for images in (batch.source_views[0], batch.target_views[0]):
            g, owners, places = draw_mosaics(len(images), 4)
            middle = F.normalize(
                method.backbone.forward_features(make_mosaics(images, owners, places))
            )
            h = 12 * word_histogram(word_logits(middle, F.normalize(method.words), 0.1))
            pretext.append(F.cross_entropy(method.pretext(h), g - 1))
    expected = its | {
        "sparse": 0.3 * assignment_entropy(logits),
        "unused": 0.2 * word_usage(logits),
        "pretext_source": 0.7 * pretext[0],
        "pretext_target": 0.7 * pretext[1],
    }
    assert terms.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(terms[name], value)


def test_every_parameter_gets_a_gradient_and_words_stay_of_unit_length() -> None:
    method = refreshed(make())
    start = method.words.detach().clone()
    assert train(method) == {name for name, _ in method.named_parameters()}
    torch.testing.assert_close(method.words.norm(dim=1), torch.ones(12))
    assert not torch.isclose(method.words, start).all()


def test_words_start_at_clusters_of_both_domains_and_only_once() -> None:
    method = make()
    random = method.words.detach().clone()
    words = refreshed(method).words.detach().clone()
    torch.testing.assert_close(words.norm(dim=1), torch.ones(12))
    assert not torch.isclose(words, random).all(1).any()
    # Locations lie nearer to their words than they did to random ones.
    middle = F.normalize(method.eval().backbone.forward_features(IMAGES))
    near, far = (word_logits(middle, w, 1.0).amax(2).mean() for w in (words, random))
    assert near > 0.8 > far
    assert refreshed(method, step=4).words.equal(words)
    assert method.backbone.features == method.features


def test_the_words_use_ten_images_a_word_and_domain_at_most() -> None:
    for words, sizes in [(12, [40, 24]), (3, [30, 24]), (2, [20, 20])]:
        method = make(words=words).eval()
        extract = Extractor(method)
        with torch.no_grad():
            method.refresh(extract, 0)
        assert [len(index) for index in extract.requested] == sizes
        assert [len(set(index.tolist())) for index in extract.requested] == sizes


def test_words_beyond_the_number_of_locations_stay_random() -> None:
    method = build("spa", Sizes(4, 4, 4, 2, 8), base="ovanet", words=150, width=8)
    random = method.words.detach().clone()
    words = refreshed(method).words
    kept = torch.isclose(words, random).all(1)
    assert 0 < kept.sum() < 150


def test_mosaics_leave_the_running_averages_of_batch_norm_alone() -> None:
    method = refreshed(make())
    before = {n: b.clone() for n, b in method.backbone.named_buffers()}
    norms = [m for m in method.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
    method._pretext(IMAGES).backward()
    assert all(b.equal(before[n]) for n, b in method.backbone.named_buffers())
    assert norms
    assert all(norm.track_running_stats for norm in norms)
    method.losses(noise(method, 0))
    assert any(not b.equal(before[n]) for n, b in method.backbone.named_buffers())


def test_nothing_of_a_step_or_a_prediction_is_kept() -> None:
    method = refreshed(make())
    method.losses(noise(method, 0))
    assert method._logits == []
    method.eval().predict(IMAGES)
    assert method._logits == []


def test_views_and_refreshes_are_the_base_s_with_target_images_for_mosaics() -> None:
    dcc, ovanet = make("dcc"), make("ovanet")
    assert len(dcc.target_views) == len(ovanet.target_views) == 1
    assert dcc.refresh_every == dcc.base.refresh_every == 1
    assert ovanet.refresh_every == SIZES.steps  # once, for the words


def test_settings_reach_the_base() -> None:
    method = make("dcc", base_set="lam=0.2,q=4")
    assert (method.base.config.lam, method.base.config.q) == (0.2, 4)
    assert make("dcc").base.config.lam == 0.1


def test_a_stored_model_restores_the_settings_of_its_base(digits: Task, out: Path) -> None:
    settings = ("base=ovanet", "words=16", "base_set=lam=0.2")
    model = run_adaptation(digits.config(out, method="spa", settings=settings, steps=2))
    images = sorted(digits.target.rglob("*.png"))[:9]
    again = load(out, "cpu")
    assert again.method.base.config.lam == 0.2
    assert_alike(model.predict(images), again.predict(images))


def test_a_backbone_without_a_middle_is_refused() -> None:
    net = nn.Linear(2, 2)
    with pytest.raises(UserError) as error:
        SPA(SPAConfig(), Backbone(net, ""), SIZES)
    assert (
        str(error.value)
        == "backbone is 'Linear'; allowed: small_cnn or a resnet, without --frozen."
    )


def test_a_frozen_backbone_is_refused_before_anything_is_embedded() -> None:
    with pytest.raises(UserError, match=r"backbone is 'SmallCNN'; allowed: .*without --frozen"):
        build("spa", dataclasses.replace(SIZES, frozen=True))
