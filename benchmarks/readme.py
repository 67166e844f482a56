"""Puts the committed tables into the README, between `<!-- table: FILE -->` and `<!-- end -->`.

python benchmarks/readme.py
"""

import re
from itertools import dropwhile, takewhile
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks"


def render(text: str) -> str:
    """The README's text with every table as its results file has it now."""

    def table(match: re.Match[str]) -> str:
        lines = iter((RESULTS / match[1]).read_text().splitlines())
        after = dropwhile(lambda line: not line.startswith("|"), lines)
        rows = takewhile(lambda line: line.startswith("|"), after)  # the first table of the file
        return "\n".join([f"<!-- table: {match[1]} -->", *rows, "<!-- end -->"])

    return re.sub(r"<!-- table: (\S+) -->.*?<!-- end -->", table, text, flags=re.DOTALL)


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(render(readme.read_text()))
