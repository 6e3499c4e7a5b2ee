"""treadle: share GPUs between online inference, training and batch work, by priority."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from treadle.progress import report
from treadle.types import ModelContext, Priority, TensorSpec

if TYPE_CHECKING:
    from treadle.client.jobs import jobs, submit
    from treadle.turnstile import assign, critical, using

__version__ = "0.1.0"

__all__ = [
    "ModelContext",
    "Priority",
    "TensorSpec",
    "__version__",
    "assign",
    "critical",
    "jobs",
    "report",
    "submit",
    "using",
]


_ELSEWHERE = {
    "assign": "treadle.turnstile",
    "critical": "treadle.turnstile",
    "using": "treadle.turnstile",
    "jobs": "treadle.client.jobs",
    "submit": "treadle.client.jobs",
}


def __getattr__(name: str) -> Any:
    """Load what only some programs need, when they ask for it."""
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_ELSEWHERE[name]), name)
