"""Pictures for pages, as SVG: the same figures give the same file."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from treadle.errors import TreadleError


def require_matplotlib() -> Any:
    """The package that draws, which is not everywhere.

    Raises:
        TreadleError: If it is missing; says what to install.
    """
    try:
        importlib.import_module("matplotlib.figure")
        return importlib.import_module("matplotlib")
    except ImportError as error:
        raise TreadleError(
            f"a plot needs matplotlib: pip install 'treadle[plot]' ({error})"
        ) from error


@contextlib.contextmanager
def drawing(file: Path, width: float, height: float) -> Iterator[Any]:
    """An empty figure, of so many inches, that is saved at the end.

    Raises:
        TreadleError: If matplotlib is missing, or the file cannot be written.
    """
    matplotlib = require_matplotlib()
    with matplotlib.rc_context({"svg.hashsalt": "treadle", "svg.fonttype": "none"}):
        figure = matplotlib.figure.Figure(figsize=(width, height), layout="constrained")
        yield figure
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(file, format="svg", metadata={"Date": None})
        except OSError as error:
            raise TreadleError(f"cannot write {file}: {error.strerror}") from error
