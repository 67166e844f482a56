"""`unida` and `python -m unida`."""

import os
import sys

# Threads wait for each other by spinning; where another program has one of the cores, that costs
# far more than its share (docs/speed.md). It is read when torch is loaded, so it is set before.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")


def main() -> int:
    from unida.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(main())
