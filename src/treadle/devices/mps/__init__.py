"""MPS: several processes' kernels at the same time on one GPU, by a control daemon of our own."""

from treadle.devices.mps.client import ClientLimits, client_environment
from treadle.devices.mps.control import find_control
from treadle.devices.mps.daemon import MpsDaemon
from treadle.devices.mps.facts import PARALLEL_MECHANISMS
from treadle.devices.mps.health import (
    MpsClient,
    MpsError,
    MpsHealth,
    MpsRefusedError,
    MpsServer,
    MpsState,
    MpsTimeoutError,
    MpsTimeouts,
)
from treadle.devices.mps.others import OtherDaemon, other_daemon, usual_pipe_directory

__all__ = [
    "PARALLEL_MECHANISMS",
    "ClientLimits",
    "MpsClient",
    "MpsDaemon",
    "MpsError",
    "MpsHealth",
    "MpsRefusedError",
    "MpsServer",
    "MpsState",
    "MpsTimeoutError",
    "MpsTimeouts",
    "OtherDaemon",
    "client_environment",
    "find_control",
    "other_daemon",
    "usual_pipe_directory",
]
