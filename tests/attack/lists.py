"""List files, CSV files, and other texts that a user writes."""

import random
import shutil
from pathlib import Path

from tests.attack.place import Case, Place, flip_bits
from tests.attack.values import any_text

CELLS = ("unknown", "Unknown", "0", "٠", "=1+1", "a\nb", 'a"b', "", " ", "x" * 200_000, "\u200b0")


def image_list(rng: random.Random, place: Place, folder: Path) -> Case:
    """A list or CSV of good images, damaged, as the labels, the source or the target."""
    pairs = [
        (str(path), path.parent.name)
        for path in sorted(place.task.source.rglob("*.png"))[:: rng.choice((5, 11))]
    ]
    is_csv = rng.random() < 0.5
    rows = [[*pair] for pair in pairs]
    done = []
    for _ in range(rng.choice((1, 2))):
        row = rng.choice(rows)
        how = rng.randrange(6)
        if how == 0:
            row[rng.randrange(len(row))] = rng.choice((any_text(rng), rng.choice(CELLS)))
        elif how == 1:
            row[0] = str(rng.choice((place.root, folder, "/dev/zero", place.images, "x.png")))
        elif how == 2:
            rows.append([row[0], rng.choice(("other", row[-1]))])
        elif how == 3:
            row.append(any_text(rng))
        elif how == 4:
            del row[1:]
        else:
            rows[:] = rows[: rng.randrange(len(rows)) + 1]
        done.append(f"change {how}")
    sign = rng.choice((",", ",", ",", ";", "\t")) if is_csv else " "
    lines = [sign.join(row) for row in rows]
    if is_csv:
        header = rng.choice(
            ("path,label", "path,label", "path,label", "label,path", "path", "", "path,path")
        )
        lines = [header, *lines]
    text = rng.choice(("\n", "\n", "\r\n", "\r")).join(lines)
    content = rng.choice((b"", b"", b"\xef\xbb\xbf")) + text.encode("utf-8", "surrogateescape")
    if rng.random() < 0.3:
        content = flip_bits(content, rng)
        done.append("bits flipped")
    if rng.random() < 0.1:
        content = content[: rng.randrange(len(content) + 1)]
        done.append("truncated")
    file = (
        folder
        / f"list{rng.choice(('.csv', '.CSV')) if is_csv else rng.choice(('.txt', '', '.lst'))}"
    )
    file.write_bytes(content)
    return Case(f"{file.name}: {', '.join(done)}", _command(rng, place, folder, file))


def _command(rng: random.Random, place: Place, folder: Path, file: Path) -> list[str]:
    listed, run = str(file), folder / "run"
    run.mkdir()
    for name in ("model.safetensors", "predictions.csv", "config.json", "done"):
        shutil.copy(place.finished / name, run / name)
    out = ["--out", str(folder / "out"), "--backbone", "small_cnn", "--image-size", "8"]
    out += ["--steps", "1", "--batch", "2", "--device", "cpu", "--no-report"]
    return rng.choice(
        (
            ["report", str(run), "--labels", listed],
            ["adapt", "--source", listed, "--target", str(place.images), *out],
            ["adapt", "--source", str(place.task.source), "--target", listed, *out],
        )
    )


TOML = (
    'name = "small-digits"', 'title = "Small digits"', 'domains = ["dark", "light"]',
    'shared = ["0", "1", "2"]', 'source_private = ["3"]', 'target_private = ["8", "9"]',
    "[run]", 'backbone = "small_cnn"', "image_size = 16", "batch = 8",
)  # fmt: skip


def protocol(rng: random.Random, place: Place, folder: Path) -> Case:
    """A protocol of a data set, damaged, to be checked."""
    lines = [*TOML]
    done = []
    for _ in range(rng.choice((1, 2))):
        i, how = rng.randrange(len(lines)), rng.randrange(6)
        name = lines[i].partition(" =")[0]
        if how == 0:
            del lines[i]
        elif how == 1:
            lines.append(lines[i])
        elif how == 2:
            values = ("1", "-1", "[]", '""', "nan", "[1]", "{}", "1979-05-27", '["a", "a"]', "true")
            lines[i] = f"{name} = {rng.choice(values)}"
        elif how == 3:
            lines[i] = f"{name} = {'[' * 5000}{']' * rng.choice((0, 5000))}"
        elif how == 4:
            lines[i] = (
                f'{name} = ["{"../" * rng.choice((1, 9))}etc", "{rng.choice(("x" * 300, "a/b"))}"]'
            )
        else:
            lines.insert(i, rng.choice(("[[run]]", "[splits]", "a.b.c = 1", "=", "\0", 'x = """')))
        done.append(f"line {i}, change {how}")
    content = "\n".join(lines).encode()
    if rng.random() < 0.3:
        content = flip_bits(content, rng)
        done.append("bits flipped")
    file = folder / "own.toml"
    file.write_bytes(content)
    command = ["data", "check", str(file), "--root", str(place.root)]
    if rng.random() < 0.3:
        command = ["bench", str(file), "--data", str(place.root / "no-data"), "--out", str(folder)]
    return Case(", ".join(done), command)
