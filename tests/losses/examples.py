"""How many examples a property is tried on; `tests/conftest.py` has the rest of the settings."""

from hypothesis import settings

few = settings(max_examples=25)
