"""Random streams: found by name, the same everywhere and independent of each other."""

import torch

from unida.utils.rng import derive_seed, generator


def test_a_stream_is_the_same_every_time() -> None:
    one, two = (torch.rand(5, generator=generator(3, "views", 7)) for _ in range(2))
    assert torch.equal(one, two)


def test_seeds_are_fixed_for_good() -> None:
    """A change here changes every seeded result that was ever reported."""
    assert derive_seed(0, "backbone") == 3454590920730826841
    assert derive_seed(1, "step", 700) == 8183073117146991484


def test_every_part_of_the_name_makes_another_stream() -> None:
    names = [(0,), (1,), (0, "a"), (0, "b"), (0, "a", 1), (0, "a", 2), (0, "a1"), (0, "a", "1")]
    names += [(0, 1), (0, 1, "a"), (1, 0)]
    assert len({derive_seed(*name) for name in names}) == len(names)


def test_seeds_are_63_bits_wide_and_not_negative() -> None:
    seeds = [derive_seed(0, "step", i) for i in range(1000)]
    assert len(set(seeds)) == 1000
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert max(seeds) > 2**62


def test_a_negative_or_huge_seed_is_a_seed_too() -> None:
    draws = [torch.rand(3, generator=generator(seed, "x")) for seed in (-1, 1, 2**80)]
    assert not torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[1], draws[2])


def test_streams_leave_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    torch.rand(100, generator=generator(5, "x"))
    assert torch.equal(torch.rand(3), expected)


def test_neighbouring_steps_are_not_alike() -> None:
    draws = torch.stack([torch.randn(200, generator=generator(0, "step", i)) for i in range(20)])
    off_diagonal = torch.corrcoef(draws) - torch.eye(20)
    assert off_diagonal.abs().max() < 0.35
