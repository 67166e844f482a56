"""Universal domain adaptation: labels for the known, 'unknown' for the rest."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unida.adaptation import adapt
    from unida.model import load

__version__ = "0.1.0"
__all__ = ["__version__", "adapt", "load"]


def __getattr__(name: str) -> Any:
    """`unida.adapt` and `unida.load`, imported when first used: torch is slow to import."""
    if name == "adapt":
        from unida.adaptation import adapt

        return adapt
    if name == "load":
        from unida.model import load

        return load
    raise AttributeError(f"module 'unida' has no attribute {name!r}")
