"""How long work will take."""

from treadle.predict.latency import BatchLatency

__all__ = ["BatchLatency"]
