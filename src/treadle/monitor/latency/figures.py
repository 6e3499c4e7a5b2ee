"""What one scrape says of one metric: a histogram, a summary, or a sum and a count."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from treadle.monitor.latency.address import TRITON_COUNT, TRITON_DURATION, LatencyAddress
from treadle.monitor.latency.lines import PageError

Labels = frozenset[tuple[str, str]]
"""Of one series, without ``le`` and ``quantile``."""
_OWN = ("le", "quantile")


@dataclass(slots=True)
class Scrape:
    """The figures of every series that matched, in the page's unit; counters."""

    buckets: dict[Labels, dict[float, float]] = field(default_factory=dict)
    """By upper bound: how many were at most so long."""
    quantiles: dict[Labels, float] = field(default_factory=dict)
    """The 0.99 quantile."""
    sums: dict[Labels, float] = field(default_factory=dict)
    counts: dict[Labels, float] = field(default_factory=dict)
    plain: bool = False
    """A value of the metric's own name, which tells of no latencies."""


def read_samples(lines: Iterable[bytes]) -> list[Sample]:
    """The samples in these lines.

    Raises:
        PageError: If a line cannot be read.
    """
    try:
        text = b"\n".join(lines).decode() + "\n"
        return [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]
    except Exception as error:  # whatever a page makes the parser do
        raise PageError("the page cannot be read as Prometheus metrics") from error


def add_samples(scrape: Scrape, samples: Iterable[Sample], address: LatencyAddress) -> None:
    """Take in the samples that match.

    Raises:
        PageError: If a value is no number, or negative.
    """
    for sample in samples:
        if any(sample.labels.get(key) != value for key, value in address.labels.items()):
            continue
        key = frozenset((k, v) for k, v in sample.labels.items() if k not in _OWN)
        if sample.name == address.metric and "quantile" in sample.labels:
            if _number(sample.labels["quantile"]) == 0.99 and not math.isnan(sample.value):
                scrape.quantiles[key] = _checked(sample)
        elif sample.name == address.metric + "_bucket":
            bound = _number(sample.labels.get("le", ""))
            scrape.buckets.setdefault(key, {})[bound] = _checked(sample)
        elif sample.name == address.metric + "_sum":
            scrape.sums[key] = _checked(sample)
        elif sample.name == address.metric + "_count":
            scrape.counts[key] = _checked(sample)
        elif address.metric == TRITON_DURATION and sample.name == TRITON_DURATION:
            scrape.sums[key] = _checked(sample)
        elif address.metric == TRITON_DURATION and sample.name == TRITON_COUNT:
            scrape.counts[key] = _checked(sample)
        elif sample.name == address.metric:
            scrape.plain = True


def check(scrape: Scrape, address: LatencyAddress) -> None:
    """Whether anything is there, and makes sense.

    Raises:
        PageError: If not.
    """
    if not (scrape.buckets or scrape.quantiles or scrape.counts):
        if scrape.plain or scrape.sums:
            raise PageError(f"{address.metric} is neither a histogram nor a summary")
        chosen = ", ".join(f'{k}="{v}"' for k, v in address.labels.items())
        with_labels = f"{{{chosen}}}" if chosen else ""
        raise PageError(f"no metric {address.metric}{with_labels} on the page")
    bounds: Mapping[float, float] | None = None
    for buckets in scrape.buckets.values():
        ordered = [buckets[bound] for bound in sorted(buckets)]
        if ordered != sorted(ordered):
            raise PageError(f"{address.metric} is no histogram: its buckets fall")
        if math.inf not in buckets:
            raise PageError(f"{address.metric} is no histogram: it has no bucket +Inf")
        if bounds is not None and buckets.keys() != bounds.keys():
            raise PageError(f"the series of {address.metric} have different buckets: choose one")
        bounds = buckets


def _checked(sample: Sample) -> float:
    value = float(sample.value)
    if math.isnan(value) or math.isinf(value):
        raise PageError(f"{sample.name} is {value}")
    if value < 0:
        raise PageError(f"{sample.name} is negative: {value:g}")
    return value


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise PageError(f"a bound on the page is no number: {text[:40]!r}")
    return number
