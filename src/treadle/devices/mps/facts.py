"""What can be done with work on a GPU that is shared by MPS, and what cannot."""

from __future__ import annotations

from treadle.devices.device import Mechanism

_NO_CHECKPOINT = "process checkpoint answers error 801 (not supported) under MPS"

PARALLEL_MECHANISMS = (
    Mechanism("concurrent kernels", True, "clients' kernels run at the same time"),
    Mechanism("client priority", True, "two levels, fixed when the client starts"),
    Mechanism("SM limit", True, "in whole percents, fixed when the client starts"),
    Mechanism("memory limit", True, "in whole MiB for each GPU, fixed when the client starts"),
    Mechanism("launch gate", True, "it works in clients as it does without MPS"),
    Mechanism("terminate", True, "the daemon ends a client's GPU work; its process is ended then"),
    Mechanism("pause", False, f"{_NO_CHECKPOINT}; the launch gate still holds launches back"),
    Mechanism("evict", False, f"{_NO_CHECKPOINT}, so memory cannot go to the host"),
    Mechanism("move", False, f"{_NO_CHECKPOINT}, so a process stays on its GPU"),
    Mechanism("fault isolation", False, "a client's fatal fault ends all clients on its GPU"),
)
"""A GPU in parallel mode. Checkpoint, limits, priority and gate as tried on one H200 with driver
580; ending a client and faults as NVIDIA documents them."""
