"""The one door to NVML: every call goes through it, and every error is mapped here."""

from __future__ import annotations

import ctypes
import importlib
import math
from collections.abc import Sequence
from typing import Any

from treadle.devices.device import DeviceError, DeviceGoneError


class MissingError(DeviceError):
    """One figure or function is not to be had here; the rest may well be."""


class NothingError(MissingError):
    """There is nothing of what was asked for, or nothing new."""


class _NothingYetError(DeviceError):
    """It took longer than it was given."""


_NOTHING = "NOT_FOUND"
_MISSING = (
    "NOT_SUPPORTED",
    "NO_PERMISSION",
    "FUNCTION_NOT_FOUND",
    "NO_DATA",
    "NOT_READY",
    "ARGUMENT_VERSION_MISMATCH",
    "DEPRECATED",
)
_GONE = ("GPU_IS_LOST", "RESET_REQUIRED", "GPU_NOT_FOUND")
_OF_THE_MACHINE = ("LIBRARY_NOT_FOUND", "DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH")
_REASONS = {
    "NOT_SUPPORTED": "this GPU or its driver does not support it",
    "NO_PERMISSION": "this user may not ask for it",
    "NOT_FOUND": "the driver has nothing of it",
    "FUNCTION_NOT_FOUND": "the driver is too old for it",
    "NO_DATA": "the driver has no data yet",
    "LIBRARY_NOT_FOUND": "no NVIDIA driver is installed here: libnvidia-ml.so.1 is not found",
    "DRIVER_NOT_LOADED": "the NVIDIA driver is not loaded",
    "LIB_RM_VERSION_MISMATCH": "the NVIDIA library and the loaded driver are of different "
    "versions; the driver was updated: restart the machine, or the container",
    "GPU_IS_LOST": "the GPU has fallen off the bus",
    "RESET_REQUIRED": "the GPU must be reset before it can be used again",
    "GPU_NOT_FOUND": "the GPU is not there any more",
    "TIMEOUT": "the driver did not answer in time",
}
_FIND_FUNCTION = "_nvmlGetFunctionPointer"
_GET_SAMPLES = "nvmlDeviceGetSamples"
_SAMPLES = 256
"""At first; a place that does not hold what the driver keeps is made larger."""
_MOST_SAMPLES = 1 << 16
_UNAVAILABLE_32 = (1 << 32) - 1
_UNAVAILABLE_64 = (1 << 64) - 1


class NVML:
    """The library, initialised. It stays loaded: only the first time is slow.

    Args:
        module: ``pynvml``, or what stands in for it.

    Raises:
        DeviceError: If it cannot be used, with the reason.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self.call("nvmlInit")

    def call(self, function: str, *arguments: Any) -> Any:
        """Call a function by name.

        Raises:
            MissingError: If what it asks for is not to be had here.
            DeviceGoneError: If the GPU is gone.
            DeviceError: If it fails otherwise.
        """
        found = getattr(self._module, function, None)
        if found is None:
            raise MissingError(f"{function}: this version of nvidia-ml-py does not know it")
        try:
            return found(*arguments)
        except self._module.NVMLError as error:
            raise self._mapped(function, int(error.value), str(error)) from error

    def wait_for_event(self, event_set: Any) -> Any:
        """The next event of a set, without waiting; None where there is none.

        Raises:
            DeviceError: As ``call``.
        """
        try:
            return self.call("nvmlEventSetWait_v2", event_set, 0)
        except _NothingYetError:
            return None

    def function(self, name: str) -> Any:
        """A function of the driver's library itself, beneath the binding; None if it is not there.

        Its errors are codes: ``error_of``.
        """
        find = getattr(self._module, _FIND_FUNCTION, None)
        try:
            return find and find(name)
        except self._module.NVMLError:
            return None

    def constant(self, name: str) -> Any:
        """A constant or a structure of the library.

        Raises:
            MissingError: If this version of the binding does not have it.
        """
        try:
            return getattr(self._module, name)
        except AttributeError:
            raise MissingError(f"this version of nvidia-ml-py has no {name}") from None

    def field(self, value: Any) -> float:
        """The content of an ``nvmlFieldValue_t``.

        Raises:
            MissingError: If it is not available.
            DeviceGoneError: If the GPU is gone.
            DeviceError: If the driver could not read it.
        """
        if value.nvmlReturn:
            raise self._mapped(
                f"field {value.fieldId}",
                int(value.nvmlReturn),
                str(self._module.NVMLError(value.nvmlReturn)),
            )
        return number(getattr(value.value, self._union_member(value.valueType)))

    def sample(self, kind: int, value: Any) -> float:
        """The content of an ``nvmlValue_t`` of a kind."""
        return number(getattr(value, self._union_member(kind)))

    def error_of(self, asked: str, code: int) -> DeviceError:
        """The error that a code in a structure stands for."""
        return self._mapped(asked, code, str(self._module.NVMLError(code)))

    def _union_member(self, kind: int) -> str:
        members = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
        if not 0 <= kind < len(members):
            raise MissingError(f"the driver answers with a value of unknown kind {kind}")
        return members[kind]

    def is_too_small(self, code: int) -> bool:
        """Whether a code says that what was given to be filled is too small."""
        return bool(code == self.constant("NVML_ERROR_INSUFFICIENT_SIZE"))

    def _mapped(self, asked: str, code: int, text: str) -> DeviceError:
        name = self._name(code)
        reason = _REASONS.get(name, text)
        if name not in _OF_THE_MACHINE:
            reason = f"{asked}: {reason}"
        if name == "TIMEOUT":
            return _NothingYetError(reason)
        if name == _NOTHING:
            return NothingError(reason)
        if name in _MISSING:
            return MissingError(reason)
        if name in _GONE:
            return DeviceGoneError(reason)
        return DeviceError(reason)

    def _name(self, code: int) -> str:
        for name in (*_MISSING, *_GONE, *_REASONS):
            if getattr(self._module, f"NVML_ERROR_{name}", None) == code:
                return name
        return ""


class SampleBuffer:
    """One kind of samples that the driver keeps of a GPU, fetched in one call each time.

    The binding's own function calls the driver twice, first for how many there are: here the place
    for them is kept.
    """

    def __init__(self, nvml: NVML, gpu: Any, kind: str) -> None:
        """Prepare.

        Args:
            nvml: The library.
            gpu: Its handle.
            kind: The constant's name, such as ``NVML_TOTAL_POWER_SAMPLES``.
        """
        self._nvml, self._gpu, self._kind = nvml, gpu, kind
        self._function = nvml.function(_GET_SAMPLES)
        self._place: Any = None

    def read(self, seen_us: int) -> tuple[int, Sequence[Any]]:
        """The kind of their values and the samples after a moment of the day, the oldest first.

        They are valid until the next call.

        Raises:
            NothingError: If there is none after that moment.
            DeviceError: As ``NVML.call``.
        """
        kind = self._nvml.constant(self._kind)
        if self._function is None:  # another version of the binding
            found: tuple[int, Sequence[Any]]
            found = self._nvml.call(_GET_SAMPLES, self._gpu, kind, seen_us)
            return found
        if self._place is None:
            self._make_place(_SAMPLES)
        while True:
            value_kind, count = ctypes.c_uint(0), ctypes.c_uint(len(self._place))
            code = self._function(
                self._gpu, ctypes.c_uint(kind), ctypes.c_ulonglong(seen_us),
                ctypes.byref(value_kind), ctypes.byref(count), self._place,
            )  # fmt: skip
            # A place that is filled to the last may not have held everything.
            full = not code and count.value >= len(self._place)
            if (full or self._nvml.is_too_small(code)) and len(self._place) < _MOST_SAMPLES:
                self._make_place(2 * len(self._place))
                continue
            if code:
                raise self._nvml.error_of(_GET_SAMPLES, code)
            return value_kind.value, self._place[: count.value]

    def _make_place(self, samples: int) -> None:
        self._place = (self._nvml.constant("c_nvmlSample_t") * samples)()


def number(value: Any) -> float:
    """A figure of the library, if it is one.

    Raises:
        MissingError: If it is the library's word for "not available", or no number.
    """
    if value is None or value in (_UNAVAILABLE_32, _UNAVAILABLE_64):
        raise MissingError("the driver says that it is not available")
    figure = float(value)
    if not math.isfinite(figure):
        raise MissingError(f"the driver answers {figure}")
    if figure < 0:
        raise MissingError(f"the driver answers {figure:g}, which cannot be")
    return figure


def load(module: Any = None) -> NVML:
    """The library, ready to be asked.

    Args:
        module: What stands in for ``pynvml``.

    Raises:
        DeviceError: If it cannot be used: no driver, not loaded, of another version.
    """
    if module is None:
        try:
            module = importlib.import_module("pynvml")
        except ImportError as error:
            raise DeviceError(f"the package nvidia-ml-py cannot be imported: {error}") from error
    return NVML(module)
