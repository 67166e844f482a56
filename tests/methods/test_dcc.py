"""DCC: docs/methods/dcc.md, its decision, its clusters, its batches, its settings."""

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.methods.toys import SIZES, FixedOutput, build, noise, predicted_labels
from unida.losses import contrastive_domain_discrepancy, memory_contrast
from unida.methods.base import Method
from unida.methods.dcc import DCC, DCCConfig
from unida.models.backbones import build_backbone
from unida.ops.consensus import update_centres
from unida.types import Batch, Sizes
from unida.utils.schedule import exponential_rampup

IMAGES = torch.rand(3, 3, 16, 16)
SIX_EACH = Sizes(n_classes=4, n_source=24, n_target=24, batch=6, steps=30)
SETTINGS = {"width": 8, "q": 2, "k_c": 3, "interval": 1, "k_max": 2, "warmup": 0}
# Six images per cluster; 0–2 are known and shared, 3 is the source's alone, 4 the target's.
SOURCE, TARGET = (0, 1, 2, 3), (0, 1, 2, 4)


class ClusteredDomains:
    """A extract at two domains whose features lie about the axes."""

    def __init__(
        self, source: tuple[int, ...] = SOURCE, target: tuple[int, ...] = TARGET, size: int = 6
    ) -> None:
        g = torch.Generator().manual_seed(3)
        axes = torch.eye(8)
        self.groups: dict[str, Tensor] = {
            name: torch.tensor(which).repeat_interleave(size)
            for name, which in (("source", source), ("target", target))
        }
        self.rows = {
            name: axes[which] + 0.05 * torch.randn(len(which), 8, generator=g)
            for name, which in self.groups.items()
        }
        self.source_labels = self.groups["source"]

    def __call__(self, domain: str, index: None, through: nn.Module) -> Tensor:
        return through(self.rows[domain])


def refreshed(method: Any, extract: Any, step: int = 0) -> Any:
    """The method after a refresh in which features pass the neck unchanged."""
    neck, method.neck = method.neck, nn.Identity()
    method.eval()
    with torch.no_grad():
        method.refresh(extract, step)
    method.neck = neck
    return method.train()


def make(sizes: Sizes = SIX_EACH, **settings: Any) -> Any:
    return build("dcc", sizes, **(SETTINGS | settings))


def with_extra(method: Method, step: int = 0) -> tuple[Batch, dict[str, tuple[str, Tensor]]]:
    """A batch of noise with the extra images, and their indices."""
    requested = method.extra(step, torch.Generator().manual_seed(step))
    g = torch.Generator().manual_seed(step + 50)
    extra = {k: torch.rand(len(n), 3, 16, 16, generator=g) for k, (_, n) in requested.items()}
    return dataclasses.replace(noise(method, step), extra=extra), requested


# --- decision


def postprocess(match: list[int], features: list[list[float]]) -> Any:
    """Predictions with a centre on each axis, of the class given or of none."""
    method = build("dcc", Sizes(3, 40, 24, 6, 8), width=3)
    method.centres[: len(match)] = torch.eye(3)[: len(match)]
    method.match[: len(match)] = torch.tensor(match)
    method.k.fill_(len(match))
    method.neck = FixedOutput(torch.tensor(features))
    method.classifier = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        method.classifier.weight.copy_(torch.eye(3).roll(1, 0))  # axis 0 → class 1 → …
        return method.eval().predict(IMAGES)


def test_an_image_near_a_matched_centre_is_known_by_the_classifier_and_another_unknown() -> None:
    outputs = postprocess([2, 0, -1], [[5.0, 1, 1], [1, 9, 2], [0.1, 0.2, 0.3]])
    # The classifier names the class, not the match, and it may be any of them.
    assert predicted_labels(outputs) == [1, 2, "unknown"]
    cosine = F.normalize(torch.tensor([[5.0, 1, 1], [1, 9, 2], [0.1, 0.2, 0.3]]))
    expected = cosine[:, 2] - cosine[:, :2].amax(1)
    torch.testing.assert_close(outputs.unknown_score, expected)


def test_with_every_cluster_matched_all_images_are_known() -> None:
    outputs = postprocess([2, 0, 1], [[5.0, 1, 1], [-1, -1, -1], [0.1, 0.2, 0.3]])
    assert "unknown" not in predicted_labels(outputs)
    assert outputs.unknown_score.argmax() == 1  # and the one far from all is still the strangest


def test_with_no_cluster_matched_or_none_found_all_images_are_unknown() -> None:
    for match in ([-1, -1, -1], []):
        outputs = postprocess(match, [[5.0, 1, 1], [-1, -1, -1], [0.1, 0.2, 0.3]])
        assert predicted_labels(outputs) == ["unknown"] * 3


def test_rows_not_in_use_decide_nothing() -> None:
    outputs = postprocess([0, -1], [[1.0, 0, 9], [0, 1, 9], [0, 0, -1]])
    assert [v == "unknown" for v in predicted_labels(outputs)] == [False, True, True]
    torch.testing.assert_close(
        outputs.unknown_score, torch.tensor([-1.0, 1, 0]) / torch.tensor([82**0.5, 82**0.5, 1])
    )


# --- clusters


def test_clusters_of_shared_classes_are_matched_and_others_not() -> None:
    extract = ClusteredDomains()
    method = refreshed(make(), extract)
    assert method.k == 4
    pseudo = method.match[method.cluster]
    expected = torch.where(extract.groups["target"] < 3, extract.groups["target"], -1)
    assert pseudo.tolist() == expected.tolist()
    assert method.labels.equal(extract.source_labels)
    torch.testing.assert_close(method.centres[:4].norm(dim=1), torch.ones(4))
    assert (method.centres[4:] == 0).all()
    assert (method.match[4:] == -1).all()


def test_k_is_frozen_when_found_twice_and_clusters_keep_their_numbers() -> None:
    extract = ClusteredDomains()
    method = refreshed(make(), extract)
    assert not method.frozen
    refreshed(method, extract)
    assert method.frozen
    before = method.cluster.clone()
    method.centres[:4] = method.centres[[1, 0, 3, 2]]
    refreshed(method, extract)
    assert method.k == 4
    assert method.cluster.equal(torch.tensor([1, 0, 3, 2])[before])


def test_the_first_search_starts_at_the_classes_and_later_ones_at_the_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[list[int]] = []

    def search(source: Tensor, labels: Tensor, target: Tensor, n_classes: int, ks: range) -> Tensor:
        tried.append(list(ks))
        return torch.eye(8)[: len(tried) + 1]

    monkeypatch.setattr("unida.methods.dcc.search_centres", search)
    method = make(interval=3, k_max=3)
    for _ in range(2):
        refreshed(method, ClusteredDomains())
    assert tried == [[4, 7, 10], [3, 6, 9, 12]]


def test_the_search_uses_a_part_of_a_large_target(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[int] = []

    def search(source: Tensor, labels: Tensor, target: Tensor, n_classes: int, ks: range) -> Tensor:
        recorded.append(len(target))
        return torch.eye(8)[:4]

    monkeypatch.setattr("unida.methods.dcc.search_centres", search)
    method = refreshed(make(Sizes(4, 400, 400, 6, 30), sample=5), ClusteredDomains(size=100))
    assert recorded == [40]  # K is 8 at most
    assert len(method.cluster) == 400


def test_nothing_is_clustered_during_the_warm_up() -> None:
    method = make(Sizes(4, 24, 24, 6, 3000), warmup=2 / 15)
    assert method.refresh_every == 200  # as released, and so is a warm-up of 400
    for step, k in ((0, 0), (200, 0), (400, 4)):
        assert refreshed(method, ClusteredDomains(), step).k == k
    assert make(Sizes(4, 24, 24, 6, 600)).refresh_every == 40
    assert make(Sizes(4, 24, 24, 6, 7)).refresh_every == 1


def test_before_the_first_clusters_there_is_cross_entropy_alone() -> None:
    method = make()
    batch, requested = with_extra(method)
    assert requested == {}
    terms = method.losses(batch)
    assert terms["ce"] > 0
    assert all(terms[name] == 0 for name in ("class_ce", "cdd", "memory"))
    torch.stack(list(terms.values())).sum().backward()
    assert all(p.grad.isfinite().all() for p in method.parameters() if p.grad is not None)


def test_where_no_matched_cluster_is_large_enough_the_memory_works_alone() -> None:
    method = refreshed(make(q=6), ClusteredDomains())  # clusters of six: not more than q
    assert method.k == 4
    assert (method.match == -1).all()
    batch, requested = with_extra(method)
    assert requested.keys() == {"clusters"}
    terms = method.losses(batch)
    assert terms["memory"] > 0
    assert terms["class_ce"] == terms["cdd"] == 0


def test_where_pairs_are_lost_the_last_clusters_stay_in_force() -> None:
    method = refreshed(make(), ClusteredDomains())
    before = {name: buffer.clone() for name, buffer in method.named_buffers()}
    method.config = dataclasses.replace(method.config, q=6)
    refreshed(method, ClusteredDomains(target=(0, 1, 4, 5)))
    assert all(buffer.equal(before[name]) for name, buffer in method.named_buffers())


def test_two_classes_and_a_tiny_target() -> None:
    for sizes in [Sizes(2, 12, 12, 4, 6), Sizes(2, 12, 2, 2, 6)]:
        extract = ClusteredDomains((0, 1), (0, 4), sizes.n_target // 2)
        extract.rows["source"] = ClusteredDomains((0, 1)).rows["source"]
        extract.source_labels = ClusteredDomains((0, 1)).source_labels
        method = refreshed(make(sizes, k_max=min(2, sizes.n_target // 2)), extract)
        assert 2 <= method.k <= 4
        assert all(term.isfinite() for term in method.losses(with_extra(method)[0]).values())


def test_more_classes_than_target_images() -> None:
    method = refreshed(make(Sizes(30, 24, 12, 4, 6), k_max=None), ClusteredDomains(target=(0, 4)))
    assert 2 <= method.k <= 12


# --- batches and losses


def test_slots_hold_images_of_their_class_or_cluster() -> None:
    extract = ClusteredDomains()
    method = refreshed(make(), extract)
    groups = extract.groups
    recorded = set()
    for step in range(20):
        requested = method.extra(step, torch.Generator().manual_seed(step))
        assert {name: domain for name, (domain, _) in requested.items()} == {
            "clusters": "target",
            "source": "source",
            "target": "target",
        }
        classes, clusters = method._slots
        assert sorted(classes) == [0, 1, 2]
        assert len(set(clusters)) == len(clusters) == 3
        per_image = torch.tensor(classes).repeat_interleave(2)
        for name in ("source", "target"):
            assert groups[name][requested[name][1]].equal(per_image)
        of_cluster = method.cluster[requested["clusters"][1]]
        assert of_cluster.equal(torch.tensor(clusters).repeat_interleave(2))
        recorded.add((*classes, *clusters))
    assert len(recorded) > 5


def test_the_losses_are_the_papers() -> None:
    method = refreshed(make(lam=0.3, gamma=2.0, tau=0.2), ClusteredDomains())
    batch, _ = with_extra(method, step=7)
    memory = method.centres[:4].clone()
    terms = method.losses(batch)
    y, ids = (torch.tensor(s).repeat_interleave(2) for s in method._slots)
    with torch.no_grad():  # train mode: the batch's own statistics
        n, n_s, n_t, n_c = (
            method.neck(method.backbone(images))
            for images in (
                batch.source_views[0],
                *(batch.extra[k] for k in ("source", "target", "clusters")),
            )
        )
        moved = update_centres(memory, n_c, ids)
        expected = {
            "ce": F.cross_entropy(method.classifier(n), batch.source_labels),
            "class_ce": F.cross_entropy(method.classifier(n_s), y),
            "cdd": 0.3 * contrastive_domain_discrepancy(n_s, n_t, 3),
            "memory": exponential_rampup(7, 50, 2.0) * memory_contrast(n_c, ids, moved, 0.2),
        }
    assert terms.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(terms[name], value)
    torch.testing.assert_close(method.centres[:4], moved)  # moved before the loss, and kept
    assert (method.centres[4:] == 0).all()


def test_every_parameter_gets_a_finite_gradient() -> None:
    method = refreshed(make(), ClusteredDomains())
    torch.stack(list(method.losses(with_extra(method)[0]).values())).sum().backward()
    for name, parameter in method.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


def test_one_matched_class_has_no_second_term() -> None:
    method = refreshed(make(), ClusteredDomains(target=(0, 4, 5, 6)))
    assert (method.match >= 0).sum() <= 4
    method.match[method.match != 0] = -1
    batch, requested = with_extra(method)
    assert len(requested["source"][1]) == 2
    with torch.no_grad():
        pair = (method.neck(method.backbone(batch.extra[d])) for d in ("source", "target"))
        cdd = method.losses(batch)["cdd"]
        torch.testing.assert_close(cdd, 0.1 * contrastive_domain_discrepancy(*pair, 1))


def test_the_release_repeats_classes_and_divides_by_those_matched() -> None:
    method = refreshed(make(blocks="cycled", k_c=5), ClusteredDomains())
    batch, requested = with_extra(method)
    assert len(requested["source"][1]) == len(requested["clusters"][1]) == 10
    classes, _ = method._slots
    assert sorted(classes[:3]) == [0, 1, 2]
    assert classes[3:] == classes[:2]
    with torch.no_grad():
        n_s, n_t = (method.neck(method.backbone(batch.extra[d])) for d in ("source", "target"))
        expected = 0.1 * contrastive_domain_discrepancy(n_s, n_t, 5, n_classes=3)
        torch.testing.assert_close(method.losses(batch)["cdd"], expected)


def test_a_stored_state_goes_on_as_before() -> None:
    method = refreshed(make(), ClusteredDomains())
    method.losses(with_extra(method)[0])
    other = make()
    other.load_state_dict(method.state_dict())
    for one, two in zip(
        with_extra(method, 3)[1].items(), with_extra(other, 3)[1].items(), strict=True
    ):
        assert one[0] == two[0]
        assert one[1][1].equal(two[1][1])
    scores = [m.eval().predict(IMAGES).unknown_score for m in (method, other)]
    assert scores[0].equal(scores[1])


def test_batch_norm_of_a_pretrained_backbone_keeps_scale_and_shift() -> None:
    for pretrained in (False, True):
        backbone = build_backbone("small_cnn", None)
        backbone.pretrained = pretrained
        method = DCC(DCCConfig(), backbone, SIZES)
        frozen = {n for n, p in method.named_parameters() if not p.requires_grad}
        norms = {n for n, m in method.named_modules() if isinstance(m, nn.BatchNorm2d)}
        assert norms
        assert frozen == {f"{n}.{p}" for n in norms for p in ("weight", "bias") if pretrained}
