"""The demo's task for any methods, both ways, several seeds: the README's table.

    python benchmarks/digits.py [--methods source_only,san] [--seeds 3] [--out FOLDER]

Results go to FOLDER/NAME.jsonl as they come and to FOLDER/NAME.md at the end; the runs themselves
to a temporary folder. Two runs at a time, one thread each.
"""

import argparse
import os
import tempfile
from pathlib import Path

import jobs

HERE = Path(__file__).parent / "results" / "digits"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default="source_only,san")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--name", default="demo")
    parser.add_argument("--results", type=Path, default=HERE)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--job", nargs="+")
    args = parser.parse_args()
    results = args.results / f"{args.name}.jsonl"
    if args.job:
        jobs.append(results, run(args.out, args.job))
        return
    from unida.data.digits import write_digits
    from unida.demo import DIRECTIONS

    out = args.out or Path(tempfile.mkdtemp(prefix="unida-digits-"))
    write_digits(out / "data")
    args.results.mkdir(parents=True, exist_ok=True)
    results.unlink(missing_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    todo = [
        f"{source}-{target} {method} {seed}"
        for seed in range(args.seeds)
        for method in args.methods.split(",")
        for source, target in DIRECTIONS
    ]
    more = ["--results", str(args.results), "--name", args.name]
    jobs.run_side_by_side(__file__, out, todo, args.at_once, more)
    table = jobs.markdown(jobs.read(results), "MNIST ↔ UCI digits, 6 shared, 2 + 2 private")
    (args.results / f"{args.name}.md").write_text(table)
    print(table)


def run(out: Path, job: list[str]) -> dict[str, object]:
    from unida.demo import SETUP

    source, target = job[0].split("-")
    data = out / "data"
    places = (data / "source" / source, data / "target" / target, out / "-".join(job))
    return jobs.run_job(job, *places, **SETUP)


if __name__ == "__main__":
    main()
