"""The monitor: every device read at the pace that it changes, by a process that may hang.

``Monitor`` starts the helper (``python -m treadle.monitor``) and tells what it reads.
"""

from treadle.monitor.monitor import AUTO, Limits, Monitor, finder
from treadle.monitor.snapshot import DeviceView, MonitorSnapshot

__all__ = ["AUTO", "DeviceView", "Limits", "Monitor", "MonitorSnapshot", "finder"]
