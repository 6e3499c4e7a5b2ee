"""When a service's requests are due: a Poisson process whose rate has bursts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from treadle.bench.arrivals import changing
from treadle.errors import ConfigError

_PARTS = 3


class Burst(Struct, frozen=True):
    """So many times the usual rate, from one whole second to another."""

    begin: int
    end: int
    factor: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``60:80:5``.

        Raises:
            ConfigError: If it is no burst; says what is allowed.
        """
        parts = text.split(":")
        try:
            if len(parts) != _PARTS:
                raise ValueError
            burst = cls(int(parts[0]), int(parts[1]), float(parts[2]))
            if not (0 <= burst.begin < burst.end and 0 < burst.factor < np.inf):
                raise ValueError
        except ValueError:
            raise ConfigError(f"{text!r}; allowed: BEGIN:END:FACTOR, as in 60:80:5") from None
        return burst

    def __str__(self) -> str:
        return f"{self.begin}:{self.end}:{self.factor:g}"


def rate_at(second: int, rate: float, bursts: Sequence[Burst]) -> float:
    """Requests per second in one second of the load."""
    for burst in bursts:
        if burst.begin <= second < burst.end:
            return rate * burst.factor
    return rate


def draw(rate: float, bursts: Sequence[Burst], seed: int, seconds: int) -> NDArray[np.float64]:
    """Seconds from the start at which requests are due, ascending; the same for the same seed."""
    rates = [rate_at(second, rate, bursts) for second in range(seconds)]
    return changing(np.arange(seconds + 1), rates, np.random.default_rng(seed))
