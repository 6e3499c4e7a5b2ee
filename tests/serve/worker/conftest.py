from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from .hosting import LocalHost


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHost]:
    """A host in this process; what loading adds to the import path is taken away again."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    local = LocalHost()
    yield local
    local.close()
