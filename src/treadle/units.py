"""Amounts of memory and lengths of time, as people write them."""

from __future__ import annotations

import re

from treadle.errors import TreadleError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", re.IGNORECASE)
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[smhd]?)", re.IGNORECASE)
_SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_bytes(text: str) -> int:
    """Read an amount of memory: ``10GiB``, ``800M``, ``1.5 gb``, ``4096``.

    Raises:
        TreadleError: If it is none.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise TreadleError(f"{text!r} is no amount of memory; allowed: 10GiB, 800MB, 4096")
    unit = (found[2] or "").lower()
    amount = int(float(found[1]) * (_UNITS | _BINARY)[unit])
    if amount <= 0:
        raise TreadleError(f"{text!r}: an amount of memory is above 0")
    return amount


def parse_seconds(text: str) -> float:
    """Read a length of time: ``90``, ``250ms``, ``90s``, ``30m``, ``1.5h``, ``2d``.

    Raises:
        TreadleError: If it is none.
    """
    found = _TIME.fullmatch(text.strip())
    seconds = float(found[1]) * _SECONDS[found[2].lower()] if found else 0.0
    if seconds <= 0:
        raise TreadleError(f"{text!r} is no length of time; allowed: 250ms, 90s, 30m, 12h, 2d")
    return seconds
