"""`unida` and `python -m unida`."""

import sys

from unida.utils.process import reuse_memory, sleep_while_waiting

sleep_while_waiting()


def main() -> int:
    from unida.cli.main import main

    reuse_memory()
    return main()


if __name__ == "__main__":
    sys.exit(main())
