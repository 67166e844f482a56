"""The methods, one short file a paper."""

from unida.methods.base import Method
from unida.methods.san import SAN
from unida.methods.source_only import SourceOnly

METHODS: dict[str, type[Method]] = {
    "san": SAN,
    "source_only": SourceOnly,
}

__all__ = ["METHODS", "Method"]
