"""Universal domain adaptation: labels for the known, 'unknown' for the rest."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unida.embedding import embed
    from unida.estimator import UniversalAdapter
    from unida.model import load
    from unida.pipeline import adapt

__version__ = "0.2.0"  # pyproject.toml reads it here
__all__ = ["UniversalAdapter", "__version__", "adapt", "embed", "load"]


def __getattr__(name: str) -> Any:
    """What is in `__all__`, imported when first used: torch is slow to import."""
    if name == "adapt":
        from unida.pipeline import adapt

        return adapt
    if name == "embed":
        from unida.embedding import embed

        return embed
    if name == "UniversalAdapter":
        from unida.estimator import UniversalAdapter

        return UniversalAdapter
    if name == "load":
        from unida.model import load

        return load
    raise AttributeError(f"module 'unida' has no attribute {name!r}")
