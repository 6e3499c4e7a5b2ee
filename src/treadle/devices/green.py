"""Some of a GPU's multiprocessors (SMs) for one stream, by the driver's green contexts.

Source: CUDA driver API, "Green Contexts"; of CUDA 12.4 and later.
"""

from __future__ import annotations

import importlib
from typing import Any

from treadle.devices.device import DeviceError

GRANULE = 8
"""SMs are given out in such groups: since Hopper the fewest there can be, and enough before."""


class GreenContexts:
    """One GPU's SMs, and the streams of this process that use only some of them.

    The contexts stay as long as the process: kernels may run in them, and graphs refer to them.
    """

    def __init__(self, device: int, driver: Any = None) -> None:
        """Divide a GPU into groups of SMs. CUDA must be in use by this process already.

        Args:
            device: Its number among those that this process sees.
            driver: What stands in for ``cuda.bindings.driver``.

        Raises:
            DeviceError: If that cannot be done here; says why.
        """
        self._driver = driver = _bindings() if driver is None else driver
        # A green context belongs to the device's primary context, which is what PyTorch uses: so
        # memory, events and libraries of this process can be used in its streams.
        self._device = self._ask("cuDeviceGet", device)
        whole = self._ask(
            "cuDeviceGetDevResource", self._device, driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
        )
        self.sms = int(whole.sm.smCount)
        """SMs of the GPU."""
        # Only groups of one split may be put together, so everything is divided at once.
        groups, count, _ = self._ask(
            "cuDevSmResourceSplitByCount", self.sms // GRANULE, whole, 0, GRANULE
        )
        self._groups = list(groups)[: int(count)]
        if not self._groups:
            raise DeviceError(f"the driver divides its {self.sms} SMs into no groups")
        self._users = [0] * len(self._groups)
        self._kept: list[Any] = []

    def stream(self, share: float, priority: int) -> tuple[int, int]:
        """Make a stream whose kernels run on at most that share of the SMs, or one group.

        Groups that fewest streams have are taken first, so that the shares of a few models lie
        side by side.

        Args:
            share: Above 0, to 1.
            priority: As CUDA counts: lower numbers are more urgent.

        Returns:
            The stream's handle, and how many SMs it has.

        Raises:
            DeviceError: If the driver does not make it; says why.
        """
        driver = self._driver
        size = int(self._groups[0].sm.smCount)
        count = min(max(1, int(share * self.sms / size)), len(self._groups))
        order = sorted(range(len(self._groups)), key=lambda number: self._users[number])
        taken = sorted(order[:count])
        chosen = [self._groups[number] for number in taken]
        description = self._ask("cuDevResourceGenerateDesc", chosen, len(chosen))
        context = self._ask(
            "cuGreenCtxCreate",
            description,
            self._device,
            driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM,
        )
        stream = self._ask(
            "cuGreenCtxStreamCreate",
            context,
            driver.CUstream_flags.CU_STREAM_NON_BLOCKING,
            priority,
        )
        for number in taken:
            self._users[number] += 1
        self._kept += [description, context, stream]
        return int(stream), sum(int(group.sm.smCount) for group in chosen)

    def _ask(self, function: str, *arguments: Any) -> Any:
        """Call the driver; what it returns beside the status."""
        call = getattr(self._driver, function, None)
        if call is None:
            raise DeviceError(f"these cuda-bindings have no {function}: CUDA 12.4 or later has")
        try:
            status, *found = call(*arguments)
        except Exception as error:  # of a driver that lacks the function
            raise DeviceError(f"{function}: {error}") from None
        if int(status) != 0:
            raise DeviceError(f"{function}: {getattr(status, 'name', status)}")
        return found[0] if len(found) == 1 else found


def _bindings() -> Any:
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise DeviceError(f"green contexts need the package cuda-bindings: {error}") from None
