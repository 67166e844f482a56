"""`unida adapt` on Office-Home UNDA tasks (10 shared, 5 source-private, 50 target-private classes).

    python benchmarks/office_home.py --data DIR --out DIR --jobs FILE [--at-once 6]

DIR has the domains as folders (`Art/Alarm_Clock/00001.webp`) or as tars of that name; every line
of FILE is a job (see jobs.py), such as `Art-Product san 0 lam=0.3 @steps=500`. Results go to
OUT/results.jsonl as they come, and at the end to OUT/table.md.
"""

import argparse
import csv
import tarfile
from collections.abc import Iterable
from pathlib import Path

import jobs

SOURCE, TARGET = range(15), [*range(10), *range(15, 65)]
SETUP = {"backbone": "resnet50-v1", "steps": 1000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=Path)
    parser.add_argument("--at-once", type=int, default=6)
    parser.add_argument("--job", nargs="+")
    args = parser.parse_args()
    results = args.out / "results.jsonl"
    if args.job:
        jobs.append(results, run(args.data, args.out, args.job))
        return
    args.out.mkdir(parents=True, exist_ok=True)
    unpack(args.data)
    todo = [line for line in args.jobs.read_text().splitlines() if line.strip()]
    jobs.run_side_by_side(__file__, args.out, todo, args.at_once, ["--data", str(args.data)])
    table = jobs.markdown(jobs.read(results), "Office-Home, UNDA 10/5/50, ResNet-50")
    (args.out / "table.md").write_text(table)
    print(table)


def unpack(data: Path) -> None:
    for tar in data.glob("*.tar"):
        if not (data / tar.stem).exists():
            with tarfile.open(tar) as file:
                file.extractall(data, filter="data")


def run(data: Path, out: Path, job: list[str]) -> dict[str, object]:
    source, target = job[0].split("-")
    folder = out / "-".join(job).replace("=", "_").replace("/", "_")
    folder.mkdir()
    write_split(data, source, SOURCE, folder / "source.csv")
    write_split(data, target, TARGET, folder / "target.csv")
    places = (folder / "source.csv", folder / "target.csv", folder / "run")
    return jobs.run_job(job, *places, **SETUP)


def write_split(data: Path, domain: str, classes: Iterable[int], path: Path) -> None:
    """A CSV of the images of some classes, numbered in alphabetical order."""
    names = sorted(folder.name for folder in (data / domain).iterdir())
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("path", "label"))
        for k in classes:
            for image in sorted((data / domain / names[k]).iterdir()):
                writer.writerow((image.resolve(), names[k]))


if __name__ == "__main__":
    main()
