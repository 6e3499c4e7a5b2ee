"""The monitor: every device read at the pace that it changes, by a process that may hang.

``Monitor`` starts the helper (``python -m treadle.monitor``) and tells what it reads.
"""

from treadle.monitor.monitor import FIND_DEVICES, Limits, Monitor
from treadle.monitor.snapshot import DeviceView, MonitorSnapshot

__all__ = ["FIND_DEVICES", "DeviceView", "Limits", "Monitor", "MonitorSnapshot"]
