"""Soft contrastive loss: docs/methods/san.md, a slow copy of the equations, limits, invariances."""

import math
from collections.abc import Callable
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.losses import slow
from tests.losses.examples import few
from unida.losses import info_nce, soft_contrastive
from unida.losses.contrastive import _released_kernel
from unida.ops.kernels import squared_distances, t_kernel

F0 = [[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]


F1 = [[0.1, 0.0], [1.0, 0.1], [0.0, 1.9]]


Z0 = [[0.0, 0.0, 1.0], [0.5, 0.0, 0.0], [0.0, 1.0, 0.0]]


Z1 = [[0.0, 0.0, 0.8], [0.5, 0.1, 0.0], [0.1, 1.0, 0.0]]


FORMS = ("paper", "released", "scaled")


HYBRID = {"unit": False, "bandwidth_y": 1.0, "bandwidth_z": 1.0, "balance": False}


SIZES = [(2, 1, 1), (2, 3, 2), (3, 2, 4), (5, 4, 3)]  # images, width of y, width of z


KERNEL_TABLE = [
    (100, 0.0, 0.3979461869, 0.9945081331, 0.9999698394, 0.9999698394),
    (100, 0.5, 0.3093415299, 0.6009469035, 0.8407566262, 0.9970345929),
    (100, 1.0, 0.2407658969, 0.3640404035, 0.5955553917, 0.9898018524),
    (100, 2.0, 0.1463914369, 0.1345832436, 0.2510538378, 0.9649454873),
    (100, 10.0, 0.003232166668, 6.560654059e-5, 1.31208777e-4, 0.5955553917),
    (10, 0.0, 0.3891083840, 0.9508255005, 0.9975818686, 0.9975818686),
    (10, 1.0, 0.2303619892, 0.3332585374, 0.5554558220, 0.9781691832),
    (10, 2.0, 0.1427492172, 0.1279696889, 0.2395631365, 0.9446404072),
    (10, 10.0, 0.008598161779, 4.642702639e-4, 9.283249809e-4, 0.5554558220),
]


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def check_case() -> tuple[Tensor, Tensor]:
    return tensor(F0 + F1).requires_grad_(), tensor(Z0 + Z1).requires_grad_()


def draw(seed: int, b: int, width_y: int, width_z: int) -> tuple[Tensor, Tensor]:
    """Two views that differ less than two images do."""
    g = torch.Generator().manual_seed(seed)

    def views(width: int) -> Tensor:
        first = torch.randn(b, width, generator=g, dtype=torch.float64)
        other = torch.randn(b, width, generator=g, dtype=torch.float64)
        return torch.cat([first, first + 0.3 * other])

    return views(width_y).requires_grad_(), views(width_z).requires_grad_()


def gradients(loss: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    found = torch.autograd.grad(loss, inputs, allow_unused=True)
    return tuple(
        torch.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True)
    )


def test_the_kernel_table() -> None:
    for nu, d2, paper, base, symmetric, wide in KERNEL_TABLE:
        at = tensor([[d2]])
        assert t_kernel(at, nu).item() == pytest.approx(paper, rel=1e-9)
        assert 6.28 * t_kernel(at, nu).item() ** 2 == pytest.approx(base, rel=1e-9)
        assert _released_kernel(at, nu).item() == pytest.approx(symmetric, rel=1e-9)
        assert _released_kernel(at / 10, nu).item() == pytest.approx(wide, rel=1e-9)


def test_the_released_kernel_symmetrises_by_the_probabilistic_or() -> None:
    found = _released_kernel(tensor([[0.0, 1.0], [2.0, 0.0]]), 10)
    one, two = 0.3332585374, 0.1279696889
    assert found[0, 1].item() == pytest.approx(one + two - one * two, rel=1e-9)
    assert torch.equal(found, found.T)


def test_the_released_similarities() -> None:
    for distance, nu, sigma, similarity in [
        (1e-4, 100, 10, 0.999969729),
        (4e-4, 100, 10, 0.999969396),
        (1.0, 100, 10, 0.989801852),
        (5.0004, 100, 10, 0.840737346),
        (0.04, 10, 1, 0.991895695),
        (1.25, 10, 1, 0.452798607),
        (0.01, 10, 1, 0.996451284),
    ]:
        found = _released_kernel(tensor([[distance / sigma]]), nu).item()
        assert found == pytest.approx(similarity, abs=1e-9)


def test_the_printed_similarities() -> None:
    for alpha, p in [(0.0, 0.395941724), (0.5, 0.652797543), (1, 1.076281195)]:
        y, z = check_case()
        kappa_y, kappa_z = (
            t_kernel(squared_distances(y, y), 100),
            t_kernel(squared_distances(z, z), 10),
        )
        assert math.exp(alpha) * kappa_y[0, 3].item() == pytest.approx(p, abs=1e-9)
        assert slow.paper_p(F0 + F1, 0, 3, alpha) == pytest.approx(p, abs=1e-9)
        assert kappa_y[0, 1].item() == pytest.approx(0.240765897, abs=1e-9)
        assert kappa_z[0, 3].item() == pytest.approx(0.380658181, abs=1e-9)


def test_the_slow_copy_gives_the_sums_per_anchor() -> None:
    for alpha, sums in [
        (0.0, [2.307581427, 2.373292346, 1.773689852, 2.390466664, 2.432292851, 1.850794209]),
        (0.5, [2.432607416, 2.491457498, 1.891855003, 2.515492653, 2.550458002, 1.968959361]),
    ]:
        found = slow.paper_anchors(F0 + F1, Z0 + Z1, alpha)
        assert found == pytest.approx(sums, abs=1e-9)


def test_the_paper_form() -> None:
    for alpha, loss in [(0, 2.188019558), (0.5, 2.308471655), (1, 2.50706359)]:
        assert soft_contrastive(*check_case(), "paper", alpha).item() == pytest.approx(
            loss, abs=1e-7
        )
        assert slow.paper(F0 + F1, Z0 + Z1, alpha) == pytest.approx(loss, abs=1e-9)


def test_the_released_form() -> None:
    for sigma, rate, loss in [
        (10, 1e4, 0.5583323779),
        (50, 1e2, 0.5790448981),
        (10, 1e5, 0.5583338231),
        (1, 1e4, 0.3964099021),
    ]:
        y, z = check_case()
        found = soft_contrastive(y, z, "released", sigma_y=sigma, near_rate=rate)
        assert found.item() == pytest.approx(loss, abs=1e-10)
        in_float32 = soft_contrastive(
            y.float(), z.float(), "released", sigma_y=sigma, near_rate=rate
        )
        assert in_float32.item() == pytest.approx(loss, abs=1e-5)


def test_the_released_form_has_the_gradients_of_methods() -> None:
    y, z = check_case()
    to_y, to_z = gradients(soft_contrastive(y, z, "released"), y, z)
    f0 = [(-0.000909159, 0.037762292), (0.001746709, -0.0016751), (-0.00083755, -0.036087192)]
    z0 = [
        (-0.098808410, -0.170793028, 0.347164731),
        (0.145433175, -0.129823358, -0.158130331),
        (-0.063867213, 0.278785007, -0.143947992),
    ]
    z1 = [(-0.092353587, -0.166299268, 0.257397844)]
    torch.testing.assert_close(to_y[:3], tensor(f0), rtol=0, atol=1e-9)
    torch.testing.assert_close(to_z[:4], tensor(z0 + z1), rtol=0, atol=1e-9)
    assert not to_y[3:].any()


def test_the_released_form_does_not_use_the_backbone_features_of_view_1() -> None:
    y, z = check_case()
    elsewhere = torch.cat([y[:3], 100 + y[3:].flip(0)])
    assert soft_contrastive(y, z, "released") == soft_contrastive(elsewhere, z, "released")


def test_the_hybrid_is_the_scaled_form_with_its_scales_off() -> None:
    for alpha, loss in [(0.0, 0.550049679), (0.5, 0.545278203)]:
        found = soft_contrastive(*check_case(), "scaled", alpha, **HYBRID)  # type: ignore[arg-type]
        assert found.item() == pytest.approx(loss, abs=1e-9)


def test_the_hybrid_similarities_are_kernels_of_height_one() -> None:
    y, z = check_case()
    p = t_kernel(squared_distances(y, y), 100, "unit")
    q = t_kernel(squared_distances(z, z), 10, "unit")
    found = [p[0, 3].item(), p[0, 1].item(), q[0, 3].item()]
    assert found == pytest.approx([0.994962981, 0.605021244, 0.978283164], abs=1e-9)


def test_the_plain_contrast() -> None:
    for temperature, unit, loss in [
        (1.0, True, 0.941655167),
        (0.5, True, 0.481076123),
        (1.0, False, 1.133679051),
    ]:
        z = tensor(Z0 + Z1)
        assert info_nce(z, temperature, unit=unit).item() == pytest.approx(loss, abs=1e-9)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("b", "width_y", "width_z"), SIZES)
def test_the_paper_form_is_the_printed_equation(
    b: int, width_y: int, width_z: int, alpha: float
) -> None:
    y, z = draw(b + width_y, b, width_y, width_z)
    loss = soft_contrastive(y, z, "paper", alpha)
    to_y, to_z = gradients(loss, y, z)
    rows_y, rows_z = slow.rows(y), slow.rows(z)
    assert loss.item() == pytest.approx(slow.paper(rows_y, rows_z, alpha), rel=1e-6)
    by_y = slow.slope(lambda t: slow.paper(slow.rows(t), rows_z, alpha), y)
    by_z = slow.slope(lambda t: slow.paper(rows_y, slow.rows(t), alpha), z)
    torch.testing.assert_close(to_y, by_y, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(to_z, by_z, rtol=1e-6, atol=1e-7)


def test_alpha_enters_in_full_double_precision() -> None:
    y, z = check_case()
    expected = slow.paper(F0 + F1, Z0 + Z1, 0.5)
    assert soft_contrastive(y, z, "paper", 0.5).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("sigma", "rate"), [(10.0, 1e4), (1.0, 10.0)])
@pytest.mark.parametrize(("b", "width_y", "width_z"), SIZES)
def test_the_released_form_is_the_authors_equation(
    b: int, width_y: int, width_z: int, sigma: float, rate: float
) -> None:
    y, z = draw(b + width_y, b, width_y, width_z)
    loss = soft_contrastive(y, z, "released", sigma_y=sigma, near_rate=rate)
    to_y, to_z = gradients(loss, y, z)
    rows_y, rows_z = slow.rows(y), slow.rows(z)
    near = slow.released_nearest(rows_y, rate)
    assert loss.item() == pytest.approx(slow.released(rows_y, rows_z, sigma, rate), rel=1e-10)
    by_y = slow.slope(lambda t: slow.released(slow.rows(t), rows_z, sigma, rate, near), y)
    by_z = slow.slope(lambda t: slow.released(rows_y, slow.rows(t), sigma, rate, near), z)
    torch.testing.assert_close(to_y, by_y, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(to_z, by_z, rtol=1e-6, atol=1e-8)


SCALED_OPTIONS: list[dict[str, float | bool | None]] = [
    {},
    {"alpha": 0.0},
    {"balance": False},
    {"sharpness": 12.0},
    {"unit": False},
    {"unit": False, "bandwidth_y": 2.0, "bandwidth_z": 5.0},
    {"bandwidth_y": 0.1, "bandwidth_z": 1.0},
]


@pytest.mark.parametrize("options", SCALED_OPTIONS, ids=str)
@pytest.mark.parametrize(("b", "width_y", "width_z"), [(2, 3, 2), (3, 2, 4), (5, 4, 3)])
def test_the_scaled_form_follows_its_docstring(
    b: int, width_y: int, width_z: int, options: dict[str, float | bool | None]
) -> None:
    y, z = draw(b + width_y, b, width_y, width_z)
    loss = soft_contrastive(y, z, "scaled", **options)  # type: ignore[arg-type]
    (to_z,) = gradients(loss, z)
    rows_y = slow.rows(y)

    def copy(t: Tensor) -> float:
        return slow.scaled(rows_y, slow.rows(t), **options)  # type: ignore[arg-type]

    assert loss.item() == pytest.approx(copy(z), rel=1e-6)
    torch.testing.assert_close(to_z, slow.slope(copy, z), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("temperature", "unit"), [(1.0, True), (0.2, True), (2.0, False)])
@pytest.mark.parametrize("b", [2, 3, 5])
def test_the_plain_contrast_is_the_printed_equation(b: int, temperature: float, unit: bool) -> None:
    _, z = draw(b, b, 1, 3)
    loss = info_nce(z, temperature, unit=unit)
    (to_z,) = gradients(loss, z)

    def copy(t: Tensor) -> float:
        return slow.info_nce(slow.rows(t), temperature, unit)

    assert loss.item() == pytest.approx(copy(z), rel=1e-10)
    torch.testing.assert_close(to_z, slow.slope(copy, z), rtol=1e-6, atol=1e-8)


Loss = Callable[[Tensor, Tensor], Tensor]


LOSSES: dict[str, Loss] = {
    "paper": lambda y, z: soft_contrastive(y, z, "paper"),
    "released": lambda y, z: soft_contrastive(y, z, "released"),
    "scaled": lambda y, z: soft_contrastive(y, z, "scaled"),
    "info_nce": lambda _, z: info_nce(z),
}


seeds = st.integers(0, 2**31)


@few
@given(seeds, st.permutations(range(4)), st.sampled_from(sorted(LOSSES)))
def test_the_order_of_the_images_does_not_matter(seed: int, order: list[int], name: str) -> None:
    y, z = draw(seed, 4, 3, 3)
    both = order + [i + 4 for i in order]
    torch.testing.assert_close(LOSSES[name](y[both], z[both]), LOSSES[name](y, z))


@few
@given(seeds, st.sampled_from(["paper", "scaled", "info_nce"]))
def test_the_views_may_be_swapped(seed: int, name: str) -> None:
    y, z = draw(seed, 4, 3, 3)
    torch.testing.assert_close(LOSSES[name](y.roll(4, 0), z.roll(4, 0)), LOSSES[name](y, z))


@few
@given(seeds, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_the_scaled_form_ignores_the_scale_of_the_features(
    seed: int, by_y: float, by_z: float
) -> None:
    y, z = draw(seed, 4, 3, 3)
    torch.testing.assert_close(soft_contrastive(by_y * y, by_z * z), soft_contrastive(y, z))


@few
@given(seeds, st.floats(1e-3, 1e3))
def test_a_bandwidth_taken_from_the_batch_follows_the_scale_of_y(seed: int, by_y: float) -> None:
    y, z = draw(seed, 4, 3, 3)
    rescaled = soft_contrastive(by_y * y, z, unit=False)
    torch.testing.assert_close(rescaled, soft_contrastive(y, z, unit=False))


def test_the_raw_forms_depend_on_the_scale_of_the_features() -> None:
    for form in ["paper", "released"]:
        y, z = check_case()
        loss, rescaled = LOSSES[form](y, z), LOSSES[form](y, 2 * z)
        assert abs(loss.item() - rescaled.item()) > 0.01


def test_the_backbone_gets_a_gradient_through_p_unless_scaled() -> None:
    for form, learns in [("paper", True), ("released", True), ("scaled", False)]:
        y, z = check_case()
        to_y, to_z = gradients(LOSSES[form](y, z), y, z)
        assert to_y.any().item() is learns
        assert to_z.any()


def test_alpha_counts_wherever_the_paper_has_it() -> None:
    for form in FORMS:
        y, z = check_case()
        same = soft_contrastive(y, z, form, 0.1) == soft_contrastive(y, z, form, 0.3)  # type: ignore[arg-type]
        assert same.item() is (form == "released")


def test_collapsed_features_give_the_plain_contrast_of_a_blind_guess() -> None:
    assert info_nce(torch.ones(8, 3)).item() == pytest.approx(math.log(7))


def test_the_plain_contrast_of_orthogonal_images_vanishes_with_the_temperature() -> None:
    z = torch.eye(4).repeat(2, 1)
    assert info_nce(z, 0.01).item() == pytest.approx(0, abs=1e-6)


def test_the_scaled_form_prefers_the_arrangement_of_the_backbone() -> None:
    y, _ = draw(0, 4, 8, 1)
    mixed = y[[1, 2, 3, 0, 4, 5, 6, 7]]
    far = 10 * torch.randn(8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    right = soft_contrastive(y, y)
    assert right < soft_contrastive(y, mixed)
    assert right < soft_contrastive(y, far)
    assert right < soft_contrastive(y, torch.ones_like(y))


def test_q_is_kept_a_millionth_off_zero_and_one() -> None:
    for z in [torch.zeros(6, 2), 1e4 * torch.eye(6)]:
        y, _ = check_case()
        found = soft_contrastive(y, z.double(), "scaled", 0.0, **HYBRID).item()  # type: ignore[arg-type]
        expected = slow.scaled(slow.rows(y), slow.rows(z), 0.0, **HYBRID)  # type: ignore[arg-type]
        assert found == pytest.approx(expected, rel=1e-6)
        assert found < -math.log(1e-6)


def test_p_above_one_stays_as_printed_in_the_paper_form_and_is_capped_in_the_scaled() -> None:
    y, z = tensor([[0.0], [9.0]] * 2), tensor([[0.0], [9.0]] * 2)
    y, z = y[[0, 1, 0, 1]], z[[0, 1, 0, 1]]
    assert slow.paper_p(slow.rows(y), 0, 2, 1.0) > 1
    losses = [soft_contrastive(y, z, "paper", a).item() for a in (0.95, 1.0)]
    assert losses[1] > losses[0] + 1e-3
    capped = [soft_contrastive(y, z, "scaled", a, **HYBRID).item() for a in (0.0, 1.0)]  # type: ignore[arg-type]
    assert capped[0] == capped[1]


def finite(loss: Tensor, *inputs: Tensor) -> bool:
    parts = [loss, *gradients(loss, *inputs)]
    return all(bool(part.isfinite().all()) for part in parts)


FEATURES: dict[str, Tensor] = {
    "zero": torch.zeros(6, 4),
    "equal": torch.full((6, 4), 0.7),
    "equal and large": torch.full((6, 4), 1e4),
    "equal views": torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).repeat(2, 1),
    "one image far off": torch.tensor([[0.0] * 4, [0.0] * 4, [1e4] * 4] * 2),
    "one row zero": torch.cat([torch.zeros(1, 4), torch.ones(5, 4)]),
    **{
        f"of size {size:g}": size * torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
        for size in (1e-38, 1e-20, 1e-6, 1.0, 1e4, 1e15)
    },
}


EVERY_LOSS: dict[str, Loss] = {
    **LOSSES,
    "alpha 1": lambda y, z: soft_contrastive(y, z, "paper", 1.0),
    "scaled, raw": lambda y, z: soft_contrastive(y, z, "scaled", unit=False),
    "info_nce, raw": lambda _, z: info_nce(z, unit=False),
}


def test_value_and_gradient_are_finite() -> None:
    for dtype, of_z, name in product([torch.float32, torch.float64], FEATURES, EVERY_LOSS):
        z = FEATURES[of_z].to(dtype)
        for of_y in (FEATURES[of_z], FEATURES["of size 1"], FEATURES["zero"]):
            y = of_y.to(dtype, copy=True).requires_grad_()
            z = z.detach().clone().requires_grad_()
            assert finite(EVERY_LOSS[name](y, z), y, z)


def rows_of_floats(limit: float) -> st.SearchStrategy[list[list[float]]]:
    row = st.lists(st.floats(-limit, limit, width=32), min_size=2, max_size=2)
    return st.lists(row, min_size=4, max_size=4)


@settings(max_examples=60, deadline=None)
@given(rows_of_floats(1e4), rows_of_floats(1e4), st.sampled_from(sorted(EVERY_LOSS)))
def test_value_and_gradient_are_finite_for_any_features(
    y: list[list[float]], z: list[list[float]], name: str
) -> None:
    of_y, of_z = torch.tensor(y, requires_grad=True), torch.tensor(z, requires_grad=True)
    assert finite(EVERY_LOSS[name](of_y, of_z), of_y, of_z)


def test_float32_agrees_with_float64() -> None:
    for name in LOSSES:
        y, z = draw(3, 6, 16, 16)
        in_float32 = LOSSES[name](y.float(), z.float()).double()
        torch.testing.assert_close(in_float32, LOSSES[name](y, z), rtol=1e-4, atol=1e-5)


def realistic() -> tuple[Tensor, Tensor]:
    """Squared distances as measured: y 1,300 and 370 between views, z 470."""
    g = torch.Generator().manual_seed(0)
    b, width = 8, 2048

    def noise() -> Tensor:
        return torch.randn(b, width, generator=g) / math.sqrt(width)

    image = noise()
    y = torch.cat([math.sqrt(465) * image + math.sqrt(185) * noise() for _ in range(2)])
    z = torch.cat([math.sqrt(235) * noise() for _ in range(2)])
    return y.requires_grad_(), z.requires_grad_()


def pull(form: str) -> float:
    """First-order change of the loss when every z moves by its own length."""
    y, z = realistic()
    (to_z,) = gradients(soft_contrastive(y, z, form), z)  # type: ignore[arg-type]
    return (to_z.norm(dim=1) * z.norm(dim=1)).sum().item()


def test_the_realistic_features_are_as_far_apart_as_measured() -> None:
    y, z = realistic()
    apart_y, apart_z = squared_distances(y, y), squared_distances(z, z)
    views = apart_y.diagonal(8)
    assert views.mean().item() == pytest.approx(370, rel=0.1)
    assert apart_y[:8, :8].sum().item() / 56 == pytest.approx(1300, rel=0.1)
    assert apart_z.sum().item() / 240 == pytest.approx(470, rel=0.1)


def test_real_features_leave_the_raw_forms_without_a_gradient() -> None:
    for form in ["paper", "released"]:
        assert pull(form) < 1e-5


def test_real_features_move_in_the_scaled_form() -> None:
    assert pull("scaled") > 0.1


def test_rows_that_are_not_two_views_of_two_images_are_refused() -> None:
    for form, (n, m) in product(FORMS, [(5, 5), (2, 2), (0, 0), (6, 4), (4, 6)]):
        with pytest.raises(ValueError, match="rows"):
            soft_contrastive(torch.ones(n, 3), torch.ones(m, 3), form)  # type: ignore[arg-type]


def test_the_plain_contrast_refuses_rows_that_do_not_pair() -> None:
    for n in [0, 2, 5]:
        with pytest.raises(ValueError, match="rows"):
            info_nce(torch.ones(n, 3))


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(ValueError, match="form is 'printed'; allowed: paper, released, scaled"):
        soft_contrastive(torch.ones(4, 2), torch.ones(4, 2), "printed")  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_features_of_another_rank_are_refused() -> None:
    for shape, name in product([(4,), (4, 4, 4)], LOSSES):
        with pytest.raises(ValueError, match="shape"):
            LOSSES[name](torch.ones(shape), torch.ones(shape))
