"""Where a server tells its latencies: ``http://host:port/metrics metric{label="value"}``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from treadle.errors import ConfigError

UNITS: Mapping[str, float] = {
    "_seconds": 1.0,
    "_milliseconds": 1e-3,
    "_ms": 1e-3,
    "_microseconds": 1e-6,
    "_us": 1e-6,
    "_nanoseconds": 1e-9,
    "_ns": 1e-9,
}
"""Seconds by the ending of a metric's name."""
TRITON_DURATION, TRITON_COUNT = "nv_inference_request_duration_us", "nv_inference_request_success"
_SHOWN = 'a latency address is like: http://127.0.0.1:8000/metrics request_seconds{model="a"}'
_METRIC = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\{.*\})?")
_ENDINGS = ("_bucket", "_sum", "_count")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyAddress:
    """A metrics page, and one metric on it."""

    url: str
    metric: str
    labels: Mapping[str, str] = field(default_factory=dict)
    """What a series must have to count."""
    unit_seconds: float = 1.0

    @property
    def names(self) -> frozenset[str]:
        """The names of the samples that make up the metric."""
        own = {self.metric, *(self.metric + ending for ending in _ENDINGS)}
        return frozenset(own | ({TRITON_COUNT} if self.metric == TRITON_DURATION else set()))


def parse_latency_address(text: str) -> LatencyAddress:
    """Read an address as a configuration file has it.

    Raises:
        ConfigError: If it is not usable; the text says why, and what is allowed.
    """
    url, _, metric = text.strip().partition(" ")
    match = _METRIC.fullmatch(metric.strip())
    if match is None:
        raise ConfigError(f"{text!r} names no metric; {_SHOWN}")
    _check_url(url)
    name = match[1]
    for ending in _ENDINGS:
        if name != TRITON_COUNT and name.removesuffix(ending).endswith(tuple(UNITS)):
            name = name.removesuffix(ending)
    unit = next((seconds for ending, seconds in UNITS.items() if name.endswith(ending)), None)
    if unit is None:
        raise ConfigError(
            f"the unit of {name} is not known: its name must end in {', '.join(UNITS)}"
        )
    return LatencyAddress(url=url, metric=name, labels=_labels(match[2], text), unit_seconds=unit)


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{url!r} is no http or https address; {_SHOWN}")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"the address of {parts.hostname} has a user name in it: not supported")
    if parts.fragment or not url.isprintable():
        raise ConfigError(f"{url!r} is no http or https address; {_SHOWN}")


def _labels(text: str | None, whole: str) -> Mapping[str, str]:
    """What is in the braces, read as the page itself is."""
    if text is None:
        return {}
    try:
        (family,) = text_string_to_metric_families(f"x{text} 1\n")
        (sample,) = family.samples
    except ValueError:
        raise ConfigError(f"the labels in {whole!r} cannot be read; {_SHOWN}") from None
    if sample.name != "x":
        raise ConfigError(f"the labels in {whole!r} cannot be read; {_SHOWN}")
    if "le" in sample.labels or "quantile" in sample.labels:
        raise ConfigError("the labels le and quantile are not for choosing by")
    return dict(sample.labels)
