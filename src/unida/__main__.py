"""`python -m unida`."""

import sys

from unida.cli import main

sys.exit(main())
