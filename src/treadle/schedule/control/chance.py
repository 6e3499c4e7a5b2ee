"""How surprising a count would be: the tails of the binomial distribution.

A P99 of twenty requests is not one. What twenty requests can tell is whether so many late ones
would be surprising if only one in a hundred were late.
"""

from __future__ import annotations

import math

_NORMAL_FROM = 400.0
"""Expected counts above which the normal distribution is close enough, and quicker."""


def _below(count: int, trials: int, chance: float) -> float:
    """P(X < count)."""
    if count <= 0:
        return 0.0
    if count > trials:
        return 1.0
    expected = trials * chance
    if expected > _NORMAL_FROM:
        spread = math.sqrt(expected * (1 - chance))
        return 0.5 * math.erfc((expected - count + 0.5) / spread / math.sqrt(2))
    odds = math.log(chance) - math.log1p(-chance)
    term, total = trials * math.log1p(-chance), 0.0
    for k in range(count):
        total += math.exp(term)
        if k > expected and term < -40 + math.log(total + 1e-300):
            break  # what is left does not change the sum
        term += math.log((trials - k) / (k + 1)) + odds
    return min(1.0, total)


def at_least(count: int, trials: int, chance: float) -> float:
    """P(X >= count) of ``trials`` that each come true with ``chance`` (above 0, below 1)."""
    return 1.0 - _below(count, trials, chance)


def at_most(count: int, trials: int, chance: float) -> float:
    """P(X <= count)."""
    return _below(count + 1, trials, chance)
