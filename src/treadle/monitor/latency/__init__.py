"""How long requests take: told by a server's metrics page, or by the node's own engine."""

from treadle.monitor.latency.address import LatencyAddress, parse_latency_address
from treadle.monitor.latency.fetch import Limits
from treadle.monitor.latency.ring import LatencyRing, window_of
from treadle.monitor.latency.scraper import LatencyScraper
from treadle.monitor.latency.source import LatencySource

__all__ = [
    "LatencyAddress",
    "LatencyRing",
    "LatencyScraper",
    "LatencySource",
    "Limits",
    "parse_latency_address",
    "window_of",
]
