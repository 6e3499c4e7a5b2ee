"""NVIDIA GPUs, through the vendor's management library (NVML)."""

from treadle.devices.nvidia.gpu import NvidiaGPU, nvidia_gpus
from treadle.devices.nvidia.library import NVML, MissingError, load
from treadle.devices.nvidia.processes import compute_processes

__all__ = ["NVML", "MissingError", "NvidiaGPU", "compute_processes", "load", "nvidia_gpus"]
