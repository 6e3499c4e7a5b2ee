"""treadle: share GPUs between online inference, training and batch work, by priority."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.progress import report
from treadle.types import ModelContext, Priority, TensorSpec

if TYPE_CHECKING:
    from treadle.turnstile import assign, critical, using

__version__ = "0.1.0"

__all__ = [
    "ModelContext",
    "Priority",
    "TensorSpec",
    "__version__",
    "assign",
    "critical",
    "report",
    "using",
]


def __getattr__(name: str) -> Any:
    """Load what only programs at a turnstile need, when they ask for it."""
    if name not in {"assign", "critical", "using"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import treadle.turnstile

    return getattr(treadle.turnstile, name)
