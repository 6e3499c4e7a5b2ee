"""What an NVIDIA GPU is, and how it is connected: asked once, when it is opened."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from treadle.devices.device import DeviceError, DeviceGoneError, DeviceInfo, DeviceKind, Link
from treadle.devices.mechanisms import GPUFacts, Host
from treadle.devices.nvidia.library import NVML, MissingError, number

_T = TypeVar("_T")
_CORES_PER_SM = {(6, 0): 64, (7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64}
"""CUDA cores by compute capability; 128 for all others since 5.0."""
_AFFINITY_WORDS = 64
"""Of 64 bits: enough for 4,096 CPU cores."""
_COMPUTE_PROHIBITED = 2
_TOPOLOGY = {
    0: "same board",
    10: "same PCIe switch",
    20: "several PCIe switches",
    30: "same host bridge",
    40: "same NUMA node",
    50: "same host",
}
_NVLINK_TO_GPU, _NVLINK_TO_SWITCH = 0, 2


def read_info(nvml: NVML, gpu: Any, index: int, host: Host) -> DeviceInfo:
    """What does not change.

    Raises:
        DeviceError: If the driver does not tell what every GPU has.
    """
    uuid = str(nvml.call("nvmlDeviceGetUUID", gpu))
    bus_id = _or(lambda: _text(nvml.call("nvmlDeviceGetPciInfo", gpu).busId).lower(), "")
    limit = _or(lambda: number(nvml.call("nvmlDeviceGetEnforcedPowerLimit", gpu)) / 1e3, None)
    return DeviceInfo(
        uuid=uuid,
        index=index,
        name=_text(nvml.call("nvmlDeviceGetName", gpu)),
        kind=DeviceKind.NVIDIA,
        cores=_or(lambda: _multiprocessors(nvml, gpu), 0),
        memory_bytes=_memory(nvml, gpu),
        driver=_driver(nvml),
        partition=read_partition(nvml, gpu),
        bus_id=bus_id,
        numa_node=_numa_node(host, bus_id),
        host_cores=_or(lambda: _host_cores(nvml, gpu), ()),
        power_limit_watts=limit,
    )


def read_partition(nvml: NVML, gpu: Any) -> str:
    """MIG: ``off``, the profiles of its instances, or empty where the GPU has none."""
    if not (mig := _or(lambda: mig_on(nvml, gpu), None)):
        return "" if mig is None else "off"
    names = []
    for place in range(int(_or(lambda: nvml.call("nvmlDeviceGetMaxMigDeviceCount", gpu), 0))):
        with contextlib.suppress(MissingError):
            instance = nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", gpu, place)
            # Such as "NVIDIA H200 MIG 1g.18gb".
            names.append(_text(nvml.call("nvmlDeviceGetName", instance)).rpartition("MIG ")[2])
    return ", ".join(names) or "on, without instances"


def mig_on(nvml: NVML, gpu: Any) -> bool:
    """Whether MIG is on.

    Raises:
        MissingError: If the GPU has none.
    """
    current, _ = nvml.call("nvmlDeviceGetMigMode", gpu)
    return bool(current == nvml.constant("NVML_DEVICE_MIG_ENABLE"))


def read_facts(nvml: NVML, gpu: Any) -> GPUFacts:
    """What the mechanisms depend on."""
    fans, fans_reason = _asked(lambda: int(number(nvml.call("nvmlDeviceGetNumFans", gpu))))
    mig, mig_reason = _asked(lambda: mig_on(nvml, gpu))
    power, power_reason = _asked(
        lambda: nvml.call("nvmlDeviceGetPowerManagementLimitConstraints", gpu)
    )
    gpm, gpm_reason = _asked(lambda: nvml.call("nvmlGpmQueryDeviceSupport", gpu))
    if gpm_reason == "" and not _gpm_supported(gpm):
        gpm_reason = "the GPU does not support it; it begins with Hopper"
    if mig:
        gpm_reason = "with MIG on there are counters by instance only, which are not read here"
    capability, _ = _asked(lambda: nvml.call("nvmlDeviceGetCudaComputeCapability", gpu))
    mode = _or(lambda: nvml.call("nvmlDeviceGetComputeMode", gpu), 0)
    return GPUFacts(
        driver=_version(_or(lambda: _text(nvml.call("nvmlSystemGetDriverVersion")), "")),
        compute_capability=None if capability is None else (capability[0], capability[1]),
        mig_on=mig,
        mig_reason=mig_reason,
        gpm=not gpm_reason,
        gpm_reason=gpm_reason,
        fans=fans,
        fans_reason=fans_reason,
        power_range_watts=None if power is None else (power[0] / 1e3, power[1] / 1e3),
        power_reason=power_reason,
        compute_prohibited=mode == _COMPUTE_PROHIBITED,
    )


def read_links(nvml: NVML, gpu: Any, others: Sequence[tuple[str, Any]]) -> list[Link]:
    """How a GPU is connected to each of the others, which come with their UUIDs."""
    if not others:
        return []
    direct, switched = _nvlinks(nvml, gpu)
    return [Link(uuid, _link(nvml, gpu, other, direct, switched)) for uuid, other in others]


def _link(
    nvml: NVML, gpu: Any, other: Any, direct: Mapping[tuple[int, int, int], int], switched: int
) -> str:
    peer = _or(lambda: _bus(nvml.call("nvmlDeviceGetPciInfo", other)), None)
    if peer is not None and peer in direct:
        return f"NVLink x{direct[peer]}"
    if switched and _reaches(nvml, gpu, other):
        return f"NVLink x{switched}"
    level = _or(lambda: int(nvml.call("nvmlDeviceGetTopologyCommonAncestor", gpu, other)), 50)
    return _TOPOLOGY.get(level, "same host")


def _nvlinks(nvml: NVML, gpu: Any) -> tuple[dict[tuple[int, int, int], int], int]:
    """Links to each other GPU by its place on the bus, and links to switches."""
    direct: dict[tuple[int, int, int], int] = {}
    switched = 0
    for link in range(int(_or(lambda: nvml.constant("NVML_NVLINK_MAX_LINKS"), 0))):
        try:
            if not nvml.call("nvmlDeviceGetNvLinkState", gpu, link):
                continue
            kind = nvml.call("nvmlDeviceGetNvLinkRemoteDeviceType", gpu, link)
            if kind == _NVLINK_TO_SWITCH:
                switched += 1
            elif kind == _NVLINK_TO_GPU:
                peer = _bus(nvml.call("nvmlDeviceGetNvLinkRemotePciInfo", gpu, link))
                direct[peer] = direct.get(peer, 0) + 1
        except DeviceGoneError:
            raise
        except DeviceError:
            break  # no NVLink, or no more of them: that is an invalid argument to some drivers
    return direct, switched


def _reaches(nvml: NVML, gpu: Any, other: Any) -> bool:
    """Whether two GPUs reach each other over switches."""
    index = nvml.constant("NVML_P2P_CAPS_INDEX_NVLINK")
    status = _or(lambda: nvml.call("nvmlDeviceGetP2PStatus", gpu, other, index), None)
    return bool(status == nvml.constant("NVML_P2P_STATUS_OK"))


def _bus(pci: Any) -> tuple[int, int, int]:
    return int(pci.domain), int(pci.bus), int(pci.device)


def _multiprocessors(nvml: NVML, gpu: Any) -> int:
    capability = tuple(nvml.call("nvmlDeviceGetCudaComputeCapability", gpu))
    cores = int(number(nvml.call("nvmlDeviceGetNumGpuCores", gpu)))
    return cores // _CORES_PER_SM.get(capability, 128)


def _memory(nvml: NVML, gpu: Any) -> int:
    try:
        memory = nvml.call("nvmlDeviceGetMemoryInfo", gpu, nvml.constant("nvmlMemory_v2"))
    except MissingError:
        memory = nvml.call("nvmlDeviceGetMemoryInfo", gpu)
    return int(number(memory.total))


def _driver(nvml: NVML) -> str:
    version = _or(lambda: _text(nvml.call("nvmlSystemGetDriverVersion")), "")
    cuda = _or(lambda: int(nvml.call("nvmlSystemGetCudaDriverVersion_v2")), 0)
    return f"{version}/{cuda // 1000}.{cuda % 1000 // 10}" if cuda else version


def _host_cores(nvml: NVML, gpu: Any) -> tuple[int, ...]:
    words = nvml.call("nvmlDeviceGetCpuAffinity", gpu, _AFFINITY_WORDS)
    return tuple(
        64 * place + bit
        for place, word in enumerate(words)
        for bit in range(64)
        if int(word) >> bit & 1
    )


def _numa_node(host: Host, bus_id: str) -> int | None:
    if not bus_id:
        return None
    # The library writes the domain with eight digits, the kernel with four.
    domain, _, rest = bus_id.partition(":")
    folder = host.root / "sys/bus/pci/devices" / f"{domain[-4:]}:{rest}"
    try:
        node = int((folder / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _gpm_supported(answer: Any) -> bool:
    # A number, or a structure with it: versions of the binding differ.
    return bool(getattr(answer, "isSupportedDevice", answer))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _or(ask: Callable[[], _T], otherwise: _T) -> _T:
    """An answer, or something else where it is not to be had."""
    try:
        return ask()
    except MissingError:
        return otherwise


def _asked(ask: Callable[[], _T]) -> tuple[_T | None, str]:
    """An answer, or why there is none."""
    try:
        return ask(), ""
    except MissingError as error:
        return None, str(error)
