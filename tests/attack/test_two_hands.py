"""Two commands at one folder: one waits, or is refused in a sentence, or both are done; nothing is
mixed. Two benches in one folder are in tests/bench/test_bench.py."""

import json
import re
import shutil
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from tests.attack.hands import Hand, Hands
from tests.attack.outcome import parts_below
from tests.attack.place import Place, generator
from tests.attack.whole import halves

RESULTS = ("predictions.csv", "model.safetensors", "diagnostics.json", "skipped.csv")
LATEST = 0.4
"""Seconds that the second command may begin after the first."""


@pytest.fixture
def delays(request: pytest.FixtureRequest) -> list[float]:
    """How long the second hand waits, in each round."""
    rng = generator(request.config.getoption("--attack-seed"), request.node.name)
    return [
        rng.uniform(0, LATEST)
        for _ in range(max(1, request.config.getoption("--attack-cases") // 1000))
    ]


def both(forked: Hands, delay: float, *commands: list[str]) -> list[Hand]:
    """Start two commands; return them when both have ended."""
    first = forked.start(commands[0])
    time.sleep(delay)
    found = [first, forked.start(commands[1])]
    for hand in found:
        hand.ended()
        assert "Traceback" not in hand.output()
    return found


def contents(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in RESULTS}


def adapt(place: Place, out: Path, seed: int) -> list[str]:
    quick = place.task.arguments(out, seed=seed, steps=8, checkpoint_every=4)
    return ["adapt", *quick, "--method", "source_only"]


def test_of_two_runs_in_one_folder_one_is_there(
    place: Place, forked: Hands, tmp_path: Path, delays: list[float]
) -> None:
    alone = []
    for seed in (1, 2):
        assert forked.run(adapt(place, tmp_path / f"alone{seed}", seed)).status() == 0
        alone.append(contents(tmp_path / f"alone{seed}"))
    for number, delay in enumerate(delays):
        out = tmp_path / str(number)
        ended = both(forked, delay, *(adapt(place, out, seed) for seed in (1, 2)))
        statuses = [hand.status() for hand in ended]
        assert sorted(map(str, statuses)) == ["0", "2"], [hand.output() for hand in ended]
        winner = statuses.index(0)
        assert re.search("is in use by process|holds a finished run", ended[1 - winner].output())
        assert contents(out) == alone[winner]
        assert json.loads((out / "config.json").read_text())["run"]["optim"]["seed"] == winner + 1
        assert halves(out) == []
        assert not (out / ".lock").exists()


def test_of_two_that_resume_one_goes_on(
    place: Place, forked: Hands, tmp_path: Path, delays: list[float]
) -> None:
    runs = [shutil.copytree(place.stopped, tmp_path / f"run{n}") for n in range(len(delays) + 1)]
    alone = runs.pop()
    assert forked.run(["adapt", "--out", str(alone), "--resume"]).status() == 0
    for run, delay in zip(runs, delays, strict=True):
        ended = both(forked, delay, *2 * [["adapt", "--out", str(run), "--resume"]])
        statuses = {hand.status() for hand in ended}
        assert statuses in ({0, 2}, {0}), [hand.output() for hand in ended]
        said = re.search(
            "is in use by process|is finished already", ended[1].output() + ended[0].output()
        )
        assert said
        assert contents(run) == contents(alone)


def test_two_that_fill_one_cache_train_as_one_alone(
    place: Place, forked: Hands, tmp_path: Path, delays: list[float]
) -> None:
    def command(name: str, cache: Path, *more: str) -> list[str]:
        return [*adapt(place, tmp_path / name, 1), "--cache-dir", str(cache), *more]

    for kind in (("--cache", "disk"), ("--frozen",)):
        alone = tmp_path / f"alone{kind[0]}"
        assert forked.run(command(alone.name, tmp_path / f"one{kind[0]}", *kind)).status() == 0
        for number, delay in enumerate(delays):
            names, cache = [f"{number}{kind[0]}{n}" for n in "ab"], tmp_path / f"{number}{kind[0]}"
            ended = both(forked, delay, *(command(name, cache, *kind) for name in names))
            assert [hand.status() for hand in ended] == [0, 0], [h.output() for h in ended]
            for name in names:
                assert contents(tmp_path / name) == contents(alone)
            assert parts_below(cache) == []


@pytest.mark.parametrize(
    ("command", "written"),
    [
        (["predict", "{run}", "{images}", "--to", "{run}/labels.csv"], "labels.csv"),
        (["discover", "{run}", "--count", "2"], "categories.csv"),
        (["evaluate", "{run}", "--labels", "{source}"], "evaluation.json"),
        (["report", "{run}"], "report.html"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_file_that_two_write_is_that_of_one(
    command: list[str],
    written: str,
    place: Place,
    forked: Hands,
    tmp_path: Path,
    delays: list[float],
) -> None:
    run = shutil.copytree(place.finished, tmp_path / "run")
    words = [w.format(run=run, images=place.images, source=place.task.source) for w in command]
    assert forked.run(words).status() == 0
    expected = (run / written).read_bytes()
    for delay in delays:
        (run / written).unlink()
        ended = both(forked, delay / 4, words, words)
        assert [hand.status() for hand in ended] == [0, 0], [hand.output() for hand in ended]
        assert (run / written).read_bytes() == expected
        assert halves(run) == []
        assert parts_below(run) == []


SAVES = 30


def test_two_review_servers_lose_no_save(place: Place, forked: Hands, tmp_path: Path) -> None:
    run = shutil.copytree(place.finished, tmp_path / "run")
    (run / "review.json").unlink()
    servers = [forked.start(["review", str(run), "--no-browser"]) for _ in range(2)]
    try:
        addresses = [_address(server) for server in servers]
        rows = (run / "predictions.csv").read_text().splitlines()[1:]
        paths = [row.split(",")[0] for row in rows[: 2 * SAVES]]
        answers: list[int] = []

        def save(which: int) -> None:
            for path in paths[which::2]:
                answers.append(_save(addresses[which], {path: "1"}))

        threads = [threading.Thread(target=save, args=(which,)) for which in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for server in servers:
            server.kill()
    assert answers == [200] * 2 * SAVES
    saved = json.loads((run / "review.json").read_text())
    assert saved["labels"] == dict.fromkeys(paths, "1")
    assert saved["revision"] == 2 * SAVES
    assert len(list((run / "review-history").glob("*.json"))) == 2 * SAVES


def test_a_review_server_that_is_killed_has_kept_what_it_answered(
    place: Place, forked: Hands, tmp_path: Path, delays: list[float]
) -> None:
    for number, delay in enumerate(delays):
        run = shutil.copytree(place.finished, tmp_path / str(number))
        (run / "review.json").unlink()
        server = forked.start(["review", str(run), "--no-browser"])
        address, answered = _address(server), list[str]()
        rows = (run / "predictions.csv").read_text().splitlines()[1:]

        def save(
            address: str = address, answered: list[str] = answered, rows: list[str] = rows
        ) -> None:
            for row in rows:
                path = row.split(",")[0]
                try:
                    _save(address, {path: "1"})
                except OSError:  # it has been killed
                    return
                answered.append(path)

        thread = threading.Thread(target=save)
        thread.start()
        time.sleep(delay)
        server.kill()
        thread.join()
        assert halves(run) == []
        review = run / "review.json"
        saved = json.loads(review.read_text())["labels"] if review.exists() else {}
        assert set(answered) <= set(saved)


def _address(server: Hand) -> str:
    while True:
        if found := re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", server.output()):
            return found[0]
        assert server.status() is None, server.output()
        time.sleep(0.01)


def _save(address: str, labels: dict[str, str]) -> int:
    """Add labels as the page does; return the status."""
    content = {"names": {}, "labels": labels, "base": {"names": {}, "labels": {}}}
    request = urllib.request.Request(
        address.replace("/?", "/save?"),
        json.dumps(content).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return int(answer.status)
