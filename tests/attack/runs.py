"""Run folders and results in which a file is damaged, missing or something else."""

import json
import random
import shutil
from pathlib import Path

from tests.attack.outcome import Outcome
from tests.attack.place import Case, Place, flip_bits
from tests.attack.values import any_text, changed


def damage(file: Path, rng: random.Random) -> str:
    """Do something to a file; return what."""
    content = file.read_bytes()
    how = rng.choice(
        ("truncate", "empty", "flip", "folder", "remove", "link", "rewrite", "rewrite")
    )
    if how == "rewrite" and file.suffix == ".json":
        new, what = changed(json.loads(content), rng)
        file.write_text(json.dumps(new))
        return what
    if how == "rewrite" and file.suffix in (".csv", ".jsonl"):
        return _rewrite_lines(file, rng)
    if how == "truncate":
        file.write_bytes(content[: rng.randrange(len(content) + 1)])
    elif how == "empty":
        file.write_bytes(b"")
    elif how == "folder":
        file.unlink()
        file.mkdir()
    elif how == "remove":
        file.unlink()
    elif how == "link":
        file.unlink()
        file.symlink_to(rng.choice(("nowhere", file.name, "/dev/null")))
    else:
        file.write_bytes(flip_bits(content or b"x", rng))
    return how


def _rewrite_lines(file: Path, rng: random.Random) -> str:
    lines = file.read_text().splitlines() or [""]
    i, how = rng.randrange(len(lines)), rng.randrange(5)
    if how == 0:
        lines[i] = any_text(rng)
    elif how == 1:
        lines.append(lines[i])
    elif how == 2:
        del lines[i]
    elif file.suffix == ".jsonl":
        try:
            content, _ = changed(json.loads(lines[i]), rng)
        except ValueError:
            content = []
        lines[i] = json.dumps(content)
    else:
        cells = lines[i].split(",")
        cells[rng.randrange(len(cells))] = any_text(rng)
        lines[i] = ",".join(cells)
    file.write_text("".join(f"{line}\n" for line in lines), errors="surrogateescape")
    return f"line {i}, change {how}"


def _copied(folder: Path, to: Path) -> Path:
    """A copy whose large files are links to the original ones: `damage` may replace them."""
    shutil.copytree(folder, to)
    return to


def run_folder(rng: random.Random, place: Place, folder: Path) -> Case:
    """A finished run with one or two damaged files, given to a command."""
    run = _copied(place.finished, folder / "run")
    names = [path.name for path in run.iterdir() if path.is_file()]
    done = []
    for name in rng.sample(sorted(names), rng.choice((1, 1, 2))):
        done.append(f"{name}: {damage(run / name, rng)}")
    at, source, to = str(run), str(place.task.source), str(folder / "written")
    end = ["--steps", "1", "--image-size", "8", "--batch", "2", "--no-report"]
    command = rng.choice(
        (
            ["report", at],
            ["report", at, "--to", to],
            ["discover", at],
            ["discover", at, "--count", "2"],
            ["predict", at, str(place.images), "--to", to],
            ["evaluate", at, "--labels", source],
            ["review", at, "--no-browser"],
            ["review", at, "--no-browser"],
            ["adapt", "--out", at, "--resume"],
            ["adapt", "--continue", at, "--out", to, *end],
            ["adapt", "--continue", at, "--out", to, *end],
        )
    )
    return Case(f"{' '.join(command[:2])}; {'; '.join(done)}", command)


def stopped_run(rng: random.Random, place: Place, folder: Path) -> Case:
    """A run with a checkpoint and one damaged file, to be resumed."""
    run = _copied(place.stopped, folder / "run")
    names = sorted(path.name for path in run.iterdir() if path.is_file())
    name = rng.choice([*names, "state.pt", "config.json", "metrics.jsonl"])
    what = damage(run / name, rng)

    def check(_: Outcome) -> list[str]:
        same = (run / "model.safetensors").read_bytes() == place.resumed
        return [] if same or name == "config.json" else ["another model, and nothing said"]

    return Case(f"{name}: {what}", ["adapt", "--out", str(run), "--resume"], check)


def results(rng: random.Random, place: Place, folder: Path) -> Case:
    """Results of a bench, damaged, to be shown as a table."""
    file = folder / "results.jsonl"
    shutil.copy(place.results, file)
    what = damage(file, rng)
    if rng.random() < 0.2:
        (folder / "notes.toml").write_text(
            rng.choice(("[notes]\nsan = 1", "x", "searched = 1", ""))
        )
    shape = rng.choice(([], ["--full"], ["--format", "csv"], ["--oracle"], ["--universal"]))
    where = rng.choice((str(file), str(folder)))
    return Case(what, ["table", where, "--out", str(folder / "tables"), *shape])
