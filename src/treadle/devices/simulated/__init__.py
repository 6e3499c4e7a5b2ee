"""A GPU that is not there, for everything that must be tested without one."""

from treadle.devices.simulated.faults import Hang
from treadle.devices.simulated.gpu import SimulatedGPU
from treadle.devices.simulated.physics import Board

__all__ = ["Board", "Hang", "SimulatedGPU"]
