"""Factories that return no model."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def raises() -> NoReturn:
    raise RuntimeError("the weights are gone")


def exits() -> NoReturn:
    sys.exit("the weights are gone")


def aborts() -> NoReturn:
    os.abort()


def returns_nothing() -> None:
    return None


class SaysNothing:
    """A model without inputs and outputs."""

    def __call__(self) -> dict[str, object]:
        return {}


not_callable = 42
