"""Views: their pixels, their colours, and that they depend on the generator alone."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Generator, Tensor

from unida.data.augmentations import (
    EVAL_VIEW,
    GREY,
    WEAK_VIEW,
    View,
    _hue_turn,
    make_view,
    strong_view,
)

STRONG = strong_view(0.5)
MIRRORED_CENTRE = View("centre", flip=True)


def draws(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


def noise(n: int, side: int, low: int = 0, high: int = 256) -> Tensor:
    return torch.randint(low, high, (n, 3, side, side), generator=draws(99), dtype=torch.uint8)


def repeated(image: Tensor, n: int) -> Tensor:
    return image[:1].expand(n, -1, -1, -1)


def find_window(view: Tensor, image: Tensor) -> tuple[int, int, bool]:
    """Find row, column and mirroring of the window of a (3, S, S) image that equals the view."""
    levels = view * 255
    assert (levels - levels.round()).abs().max() < 0.01  # nothing is blurred
    pixels, size = levels.round().to(torch.uint8), view.shape[-1]
    places = range(image.shape[-1] - size + 1)
    for mirrored, shown in ((False, pixels), (True, pixels.flip(2))):
        for row, column in product(places, places):
            window = image[:, row : row + size, column : column + size]
            if torch.equal(window[0, 0], shown[0, 0]) and torch.equal(window, shown):
                return row, column, mirrored
    raise AssertionError("no window of the image equals the view")


class TestAnyView:
    def test_shape_type_and_range(self) -> None:
        views = (EVAL_VIEW, WEAK_VIEW, STRONG, MIRRORED_CENTRE)
        for view, (side, size) in product(views, ((18, 16), (9, 8), (16, 16), (20, 9))):
            result = make_view(view, noise(5, side), size, draws())
            assert result.shape == (5, 3, size, size)
            assert result.dtype == torch.float32
            assert result.min() >= 0
            assert result.max() <= 1 + 1e-6

    @pytest.mark.parametrize("view", [WEAK_VIEW, STRONG])
    def test_a_view_depends_on_the_generator(self, view: View) -> None:
        images = noise(6, 24)
        first, same, other = (make_view(view, images, 16, draws(seed)) for seed in (1, 1, 2))
        assert torch.equal(first, same)
        assert not torch.equal(first, other)

    def test_every_image_of_a_batch_has_its_own_draw(self) -> None:
        result = make_view(STRONG, repeated(noise(1, 24), 40), 16, draws())
        assert len(result.flatten(1).unique(dim=0)) == 40

    @pytest.mark.parametrize("view", [WEAK_VIEW, STRONG])
    def test_global_random_state_is_not_touched(self, view: View) -> None:
        before = torch.get_rng_state()
        make_view(view, noise(3, 24), 16, draws())
        assert torch.equal(torch.get_rng_state(), before)

    def test_images_are_not_changed_in_place(self) -> None:
        images = noise(3, 24)
        make_view(STRONG, images, 16, draws())
        assert torch.equal(images, noise(3, 24))


class TestPlain:
    def test_it_is_the_exact_centre(self) -> None:
        for side, size in ((18, 16), (9, 8), (16, 16), (21, 8)):
            images = noise(3, side)
            corner = (side - size) // 2
            expected = images[..., corner : corner + size, corner : corner + size] / 255
            assert torch.equal(make_view(EVAL_VIEW, images, size, draws()), expected)

    def test_mirrored_it_is_the_same_centre(self) -> None:
        images = repeated(noise(1, 21), 20)
        result = make_view(MIRRORED_CENTRE, images, 8, draws())
        found = [find_window(view, images[0]) for view in result]
        assert {(row, column) for row, column, _ in found} == {(6, 6)}
        assert {mirrored for *_, mirrored in found} == {True, False}


class TestWeak:
    def test_windows_are_uniform_and_half_are_mirrored(self) -> None:
        images = repeated(noise(1, 12), 400)
        result = make_view(WEAK_VIEW, images, 9, draws())
        found = [find_window(view, images[0]) for view in result]
        rows, columns, mirrored = (np.array(part) for part in zip(*found, strict=True))
        # 100 of each are expected, the standard deviation is 9; mirrored: 200, 10.
        np.testing.assert_allclose(np.bincount(rows, minlength=4), 100, atol=40)
        np.testing.assert_allclose(np.bincount(columns, minlength=4), 100, atol=40)
        assert abs(mirrored.sum() - 200) < 45
        assert len(set(found)) == 32

    @pytest.mark.parametrize(("side", "size"), [(37, 32), (64, 56), (256, 224)])
    def test_pixels_stay_whole_at_any_size(self, side: int, size: int) -> None:
        images = noise(2, side)
        result = make_view(WEAK_VIEW, images, size, draws())
        found = [find_window(view, image) for view, image in zip(result, images, strict=True)]
        assert found[0] != found[1]

    def test_without_flip_nothing_is_mirrored(self) -> None:
        images = repeated(noise(1, 12), 60)
        result = make_view(WEAK_VIEW.adjusted(flip=False, jitter=1.0), images, 9, draws())
        found = [find_window(view, images[0]) for view in result]
        assert not any(mirrored for *_, mirrored in found)


def ramp(side: int) -> Tensor:
    """Make (1, 3, side, side): red is twice the column, green twice the row."""
    steps = 2 * torch.arange(side, dtype=torch.uint8)
    red, green = steps.expand(side, side), steps[:, None].expand(side, side)
    return torch.stack([red, green, torch.zeros_like(red)])[None]


def read_boxes(view: View, n: int, side: int, size: int, seed: int) -> np.ndarray:
    """Read left, upper, right, lower (n, 4) of the boxes, in pixels, off a ramp.

    A mirrored box has its right side on the left.
    """
    uncoloured = replace(view, jitter=(0.0, 0.0, 0.0, 0.0))
    shown = make_view(uncoloured, repeated(ramp(side), n), size, draws(seed)) * (255 / 2)
    low, high = size // 4, size - size // 4  # away from the border, where the ramp ends
    edges = []
    for line in (shown[:, 0, size // 2], shown[:, 1, :, size // 2]):
        step = (line[:, high] - line[:, low]) / (high - low)
        start = line[:, low] + 0.5 - (low + 0.5) * step
        edges += [start, start + size * step]
    left, right, upper, lower = edges
    return torch.stack([left, upper, right, lower], 1).double().numpy()


class TestResized:
    def test_boxes_keep_to_the_image_to_the_area_and_to_the_shape(self) -> None:
        side = 100
        left, upper, right, lower = read_boxes(STRONG, 500, side, 32, seed=0).T / side
        width, height = np.abs(right - left), lower - upper
        for edge in (left, right, upper, lower):
            assert edge.min() > -1e-3
            assert edge.max() < 1 + 1e-3
        whole = (width < 0.999) & (height < 0.999)  # a longer side was cut to the image's
        area, shape = width * height, width / height
        assert area[whole].min() >= 0.5 - 1e-3
        assert area.min() >= 0.5 * np.sqrt(3 / 4) - 1e-3
        assert shape[whole].min() >= 3 / 4 - 1e-3
        assert shape[whole].max() <= 4 / 3 + 1e-3
        assert area[whole].min() < 0.52
        assert area.max() > 0.95

    def test_half_are_mirrored_and_none_without_flip(self) -> None:
        left, _, right, _ = read_boxes(STRONG, 200, 64, 32, seed=0).T
        assert 70 < (right < left).sum() < 130
        left, _, right, _ = read_boxes(replace(STRONG, flip=False), 200, 64, 32, seed=0).T
        assert (right > left).all()

    @pytest.mark.parametrize(
        ("side", "size", "least_area", "n"),
        [(37, 24, 0.5, 4), (18, 16, 0.5, 8), (16, 8, 0.01, 80)],  # the last: enlarged, at the edge
    )
    def test_pixels_are_those_of_a_slow_bilinear_reference(
        self, side: int, size: int, least_area: float, n: int
    ) -> None:
        view = View("resized", least_area, flip=True)
        images = repeated(noise(1, side), n)
        result = make_view(view, images, size, draws(4))
        boxes = read_boxes(view, n, side, size, seed=4)
        for box, cut in zip(boxes, result, strict=True):
            expected = bilinear(images[0].numpy(), box, size)
            np.testing.assert_allclose(cut.numpy(), expected, atol=2e-3)

    def test_the_slow_reference_agrees_with_pillow(self) -> None:
        """Away from the border, where Pillow leaves pixels out."""
        image, box = noise(1, 24)[0].numpy(), np.array([3.3, 2.1, 20.7, 21.9])
        extent = Image.Transform.EXTENT
        channels = [Image.fromarray(channel.astype(np.float32)) for channel in image]
        shown = [c.transform((16, 16), extent, tuple(box), Image.BILINEAR) for c in channels]
        expected = np.stack([np.asarray(c) for c in shown]) / 255
        np.testing.assert_allclose(bilinear(image, box, 16), expected, atol=1e-4)


def bilinear(image: np.ndarray, box: np.ndarray, size: int) -> np.ndarray:
    """The box of a (3, S, S) image, resampled pixel by pixel; beyond the border it goes on."""
    left, upper, right, lower = box
    side = image.shape[-1]
    result = np.zeros((3, size, size))

    def neighbours(start: float, end: float, i: int) -> list[tuple[int, float]]:
        at = min(max(start + (i + 0.5) / size * (end - start) - 0.5, 0), side - 1)
        first = int(at)
        return [(first, 1 - (at - first)), (min(first + 1, side - 1), at - first)]

    for i in range(size):
        for j in range(size):
            for row, row_share in neighbours(upper, lower, i):
                for column, column_share in neighbours(left, right, j):
                    result[:, i, j] += row_share * column_share * image[:, row, column] / 255
    return result


def jittered(*strengths: float, chance: float = 1.0) -> View:
    return View("centre", jitter=strengths, jitter_chance=chance)  # type: ignore[arg-type]


class TestJitter:
    # Middle values, so that no colour is cut off at black or white.
    images = noise(64, 8, low=110, high=140)
    plain = images / 255

    def recoloured(self, view: View) -> Tensor:
        return make_view(view, self.images, 8, draws())

    def grey(self, images: Tensor) -> Tensor:
        return torch.einsum("nchw,c->nhw", images, torch.tensor(GREY))

    def test_strength_0_leaves_every_pixel(self) -> None:
        view = EVAL_VIEW.adjusted(flip=True, jitter=0.0)
        assert torch.equal(self.recoloured(view), self.plain)
        view = replace(STRONG.adjusted(flip=False, jitter=0.0), crop="centre")
        assert torch.equal(self.recoloured(view), self.plain)

    @pytest.mark.parametrize("strength", [1.0, 5.0])
    def test_grey_stays_grey(self, strength: float) -> None:
        images = noise(16, 20)[:, :1].expand(-1, 3, -1, -1)
        view = STRONG.adjusted(flip=True, jitter=strength)
        result = make_view(view, images, 16, draws())
        torch.testing.assert_close(result, result[:, :1].expand_as(result))

    def test_brightness_is_one_factor_an_image(self) -> None:
        factor = self.recoloured(jittered(0.4, 0, 0, 0)) / self.plain
        assert (factor.amax((1, 2, 3)) - factor.amin((1, 2, 3))).max() < 1e-4
        assert 0.6 <= factor.min() < 0.7
        assert 1.3 < factor.max() <= 1.4

    def test_contrast_moves_values_from_or_to_the_mean_grey(self) -> None:
        result = self.recoloured(jittered(0, 0.4, 0, 0))
        mean = self.grey(self.plain).mean((1, 2))[:, None, None, None]
        factor = (result - mean).flatten(1).norm(dim=1) / (self.plain - mean).flatten(1).norm(dim=1)
        expected = mean + factor[:, None, None, None] * (self.plain - mean)
        torch.testing.assert_close(result, expected, atol=1e-5, rtol=0)
        assert 0.6 <= factor.min() < 0.7
        assert 1.3 < factor.max() <= 1.4

    def test_contrast_keeps_the_mean_grey_at_any_brightness(self) -> None:
        both, brightness = (self.recoloured(jittered(0.4, c, 0, 0)) for c in (0.4, 0))
        assert not torch.allclose(both, brightness, atol=0.01)
        torch.testing.assert_close(*(self.grey(view).mean((1, 2)) for view in (both, brightness)))

    def test_saturation_keeps_the_grey_of_every_pixel(self) -> None:
        result = self.recoloured(jittered(0, 0, 0.4, 0))
        torch.testing.assert_close(self.grey(result), self.grey(self.plain))
        spread = (result - self.grey(result)[:, None]).flatten(1).norm(dim=1)
        before = (self.plain - self.grey(self.plain)[:, None]).flatten(1).norm(dim=1)
        assert 0.6 <= (spread / before).min() < 0.7
        assert 1.3 < (spread / before).max() <= 1.4

    def test_hue_turns_about_the_grey_axis(self) -> None:
        result = self.recoloured(jittered(0, 0, 0, 0.5))
        torch.testing.assert_close(result.mean(1), self.plain.mean(1))
        torch.testing.assert_close(result.norm(dim=1), self.plain.norm(dim=1))
        assert not torch.allclose(result, self.plain, atol=0.01)

    def test_a_third_of_a_turn_swaps_the_channels(self) -> None:
        expected = torch.tensor([[0.0, 0, 1], [1, 0, 0], [0, 1, 0]])
        torch.testing.assert_close(_hue_turn(torch.tensor([1 / 3]))[0], expected)

    @pytest.mark.parametrize(("chance", "least", "most"), [(0.0, 0, 0), (0.5, 16, 48), (1, 64, 64)])
    def test_the_share_of_changed_images(self, chance: float, least: int, most: int) -> None:
        result = self.recoloured(jittered(0.4, 0.4, 0.2, 0.1, chance=chance))
        changed = ((result - self.plain).abs().amax((1, 2, 3)) > 1e-4).sum()
        assert least <= changed <= most

    @pytest.mark.parametrize("strengths", [(3.0, 0, 0, 0), (0, 3.0, 0, 0), (3.0, 3.0, 0, 0)])
    def test_no_strength_makes_a_negative(self, strengths: tuple[float, ...]) -> None:
        result = self.grey(self.recoloured(jittered(*strengths)))
        before = self.grey(self.plain)
        agreement = (result - result.mean((1, 2), keepdim=True)) * (
            before - before.mean((1, 2), keepdim=True)
        )
        assert agreement.sum((1, 2)).min() > -1e-4


class TestAdjusted:
    def test_flip_can_be_turned_off_but_not_on(self) -> None:
        assert not WEAK_VIEW.adjusted(flip=False, jitter=1.0).flip
        assert WEAK_VIEW.adjusted(flip=True, jitter=1.0).flip
        assert not EVAL_VIEW.adjusted(flip=True, jitter=1.0).flip

    def test_jitter_scales_all_strengths(self) -> None:
        assert STRONG.adjusted(flip=True, jitter=0.5).jitter == (0.2, 0.2, 0.1, 0.05)

    def test_hue_is_half_a_turn_at_most(self) -> None:
        assert STRONG.adjusted(flip=True, jitter=10).jitter[3] == 0.5

    def test_everything_else_stays(self) -> None:
        assert STRONG.adjusted(flip=True, jitter=1.0) == STRONG
