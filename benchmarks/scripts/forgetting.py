"""Does refinement forget classes? Recall on held-out source images, with and without it.

    python benchmarks/scripts/forgetting.py DUMPS OUT

DUMPS is a folder of `frozen_bench.py --dump` with the option holdout. OUT.md gets a table: for each
run the mean recall over the classes of the method alone and refined, the part of it that is kept,
and the class that loses most.
"""

import argparse
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

HEAD = (
    "| run | images | alone | refined | kept | classes that keep 98 % | worst class keeps |\n"
    "|---|---:|---:|---:|---:|---:|---:|\n"
)


def row(name: str, arrays: Any) -> str:
    """Return the line of a run; classes that are never recognised are left out."""
    labels = arrays["held_labels"]
    assert arrays["held_paths_equal"].all()
    recalls = {
        kind: np.array([(arrays[f"held_{kind}"] == labels)[labels == k].mean() for k in range(n)])
        for kind in ("alone", "refined")
        if (n := labels.max() + 1)
    }
    some = recalls["alone"] > 0
    kept = recalls["refined"][some] / recalls["alone"][some]
    alone, refined = (recalls[kind].mean() for kind in ("alone", "refined"))
    whole = f"{(kept >= 0.98).sum()} of {some.sum()}"
    cells = (f"{100 * x:.1f}" for x in (alone, refined, refined / alone))
    run = name.removesuffix(".npz").rpartition("_")[0]
    return f"| {run} | {len(labels)} | {' | '.join(cells)} | {whole} | {100 * kept.min():.0f} |\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dumps", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    lines = []
    for file in sorted(given.dumps.glob("dump-*.zip")):
        with zipfile.ZipFile(file) as archive:
            for name in sorted(archive.namelist()):
                arrays = np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
                if "held_labels" in arrays:
                    lines.append(row(name, arrays))
    given.out.with_suffix(".md").write_text(HEAD + "".join(lines))
    print(HEAD + "".join(lines))


if __name__ == "__main__":
    main()
