"""Whatever is given to a command, it ends well, or with one sentence and nothing half done.

Cases are drawn by a seed: `pytest tests/attack/test_fuzz.py --attack-cases 20000 --attack-seed 7`.
The number that a failure names makes the same case again.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.attack import command_lines, images, lists, models, runs
from tests.attack.outcome import attempt, faults, parts_below, shown, state_of
from tests.attack.place import Case, Place, generator
from unida.review.server import ReviewServer

Maker = Callable[[random.Random, Place, Path], Case]

KINDS: dict[str, tuple[Maker, float]] = {
    "command line": (command_lines.command_line, 0.30),
    "image": (images.image, 0.18),
    "list": (lists.image_list, 0.05),
    "protocol": (lists.protocol, 0.07),
    "model": (models.model, 0.22),
    "weights": (models.weights, 0.02),
    "run": (runs.run_folder, 0.08),
    "stopped run": (runs.stopped_run, 0.02),
    "results": (runs.results, 0.06),
}
"""What makes the cases of a kind, and its share of them."""
CACHES = 0.005
"""Damaged caches of a kind, as a share of the cases."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """`unida review` ends as soon as it could serve."""

    def end(_: ReviewServer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ReviewServer, "serve_forever", end)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("no_server")
def test_no_case_ends_badly(
    kind: str, place: Place, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    make, share = KINDS[kind]
    number = round(share * request.config.getoption("--attack-cases"))
    seed = request.config.getoption("--attack-seed")
    before, wrong = state_of(place.root), []
    for i in range(number):
        folder = tmp_path / str(i)
        folder.mkdir()
        case = make(generator(seed, kind, i), place, folder)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            outcome = attempt(case.command)
        found = faults(outcome)
        found += case.check(outcome) if outcome.status == 0 else []
        found += [f"a part is left: {part.name}" for part in parts_below(folder)]
        if state_of(place.root) != before:
            found.append("a file was changed that is not its own")
            before = state_of(place.root)
        if (folder / models.MARK).exists():
            found.append("code of the file was run")
        if found:
            name = case.name.encode("ascii", "backslashreplace").decode()[:600]
            wrong.append(f"{kind} {i}, {name}: {', '.join(found)}\n{shown(outcome)}")
        shutil.rmtree(folder)
    assert not wrong, f"{len(wrong)} of {number}, seed {seed}\n" + "\n".join(wrong[:20])


def test_a_damaged_cache_changes_nothing(
    place: Place, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seed = request.config.getoption("--attack-seed")
    for kind in (["--cache", "disk"], ["--frozen", "--frozen-views", "1"]):

        def model(name: str, cache: Path, kind: list[str] = kind) -> bytes:
            out = tmp_path / kind[0] / name
            quick = place.task.arguments(out, steps=2, method="source_only")
            outcome = attempt(["adapt", *quick, "--cache-dir", str(cache), *kind])
            assert outcome.status == 0, shown(outcome)
            assert faults(outcome) == []
            return (out / "model.safetensors").read_bytes()

        whole = tmp_path / kind[0] / "cache"
        expected = model("whole", whole)
        for i in range(max(1, round(CACHES * request.config.getoption("--attack-cases")))):
            rng, cache = generator(seed, kind, i), tmp_path / kind[0] / f"cache{i}"
            shutil.copytree(whole, cache)
            file = rng.choice(sorted(path for path in cache.iterdir()))
            what = runs.damage(file, rng)
            if file.is_dir():  # not the cache's: refused in one sentence, and still there
                quick = place.task.arguments(tmp_path / f"folder{i}", steps=2, method="source_only")
                outcome = attempt(["adapt", *quick, "--cache-dir", str(cache), *kind])
                assert outcome.status in (0, 2), shown(outcome)
                assert faults(outcome) == []
                assert file.is_dir()
                continue
            assert model(str(i), cache) == expected, f"{file.name}: {what}"
            shutil.rmtree(cache)
