"""System shared memory: tensors that stay in POSIX shared memory objects of the client's.

Source: Triton's system shared memory extension. An object is read and written through its file,
never through a mapping: one that shrinks under a mapping ends the process that looks at it, a
file answers with fewer bytes. What is read is the node's own from then on, so a client that goes
on writing cannot change what was checked.
"""

from __future__ import annotations

import asyncio
import os
import stat
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

from treadle.errors import InvalidRequestError, NotFoundError, TooLargeError
from treadle.serve.helper import HelperProcess
from treadle.serve.request import InferenceRequest
from treadle.serve.tensors import Buffer, SharedPlace, SharedTensor, Tensor, fixed_nbytes
from treadle.serve.validate import check_data

_FOLDER = "/dev/shm"  # noqa: S108 - where POSIX shared memory is on Linux
_MOST_REGIONS = 1024
_LONGEST_NAME = 255
_LONG_COPY_BYTES = 1 << 20
_LONG_TEXT_BYTES = 48 << 10
"""Lengths of BYTES elements in more data than this take over a millisecond to walk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionStatus:
    """What was registered, in the extension's words."""

    name: str
    key: str
    offset: int
    byte_size: int


class _Region:
    """An open object. It is closed when the last one who uses it lets go."""

    def __init__(self, fd: int, status: RegionStatus) -> None:
        self.fd = fd
        self.status = status
        weakref.finalize(self, os.close, fd)


class SharedMemory:
    """The regions that clients have registered."""

    def __init__(self, max_bytes: int, helper: HelperProcess) -> None:
        """Start with no region.

        Args:
            max_bytes: What one request may bring: it is copied.
            helper: Where long texts are checked.
        """
        self._max_bytes = max_bytes
        self._helper = helper
        self._regions: dict[str, _Region] = {}

    def register(self, name: str, key: str, offset: int, byte_size: int, uid: int | None) -> None:
        """Open an object and give it a name that requests may use.

        Args:
            name: For requests.
            key: Of the object, as for ``shm_open``.
            offset: Where in the object the region begins, in bytes.
            byte_size: How long it is.
            uid: The caller's user, if known: it must be theirs or the node's.

        Raises:
            InvalidRequestError: If that cannot be; says why.
        """
        if not 0 < len(name) <= _LONGEST_NAME:
            raise InvalidRequestError(f"a region has a name of 1 to {_LONGEST_NAME} characters")
        if name in self._regions:
            raise InvalidRequestError(
                f"shared memory region '{name}' is registered already; unregister it first"
            )
        if len(self._regions) >= _MOST_REGIONS:
            raise InvalidRequestError(f"{_MOST_REGIONS} regions are registered; that is the most")
        if offset < 0 or byte_size < 1:
            raise InvalidRequestError(
                f"offset is {offset} and byte_size {byte_size}; allowed: from 0 and from 1"
            )
        fd = _open(key, uid)
        region = _Region(fd, RegionStatus(name=name, key=key, offset=offset, byte_size=byte_size))
        size = os.fstat(fd).st_size
        if offset + byte_size > size:
            raise InvalidRequestError(
                f"shared memory object '{key}' has {size} bytes; the region would end at "
                f"{offset + byte_size}"
            )
        self._regions[name] = region

    def unregister(self, name: str | None) -> None:
        """Forget a region, or all of them. Requests that use it already are answered."""
        if name is None:
            self._regions.clear()
        else:
            self._regions.pop(name, None)

    def status(self, name: str | None) -> list[RegionStatus]:
        """What is registered.

        Raises:
            NotFoundError: If there is no region of that name.
        """
        if name is None:
            return [region.status for region in self._regions.values()]
        if name not in self._regions:
            raise NotFoundError(f"no shared memory region '{name}' is registered")
        return [self._regions[name].status]

    async def fill(self, request: InferenceRequest) -> None:
        """Read the inputs of a request that lie in regions, and look at where outputs go.

        Raises:
            InvalidRequestError: If a region is not there or too small, or the data is wrong.
        """
        for output in request.outputs:
            if output.place is not None:
                self._find(output.place, f"output '{output.name}'")
        places = [t.place.nbytes for t in request.inputs if isinstance(t, SharedTensor)]
        if sum(places) > self._max_bytes:
            raise TooLargeError(
                f"the inputs in shared memory have {sum(places)} bytes; allowed: {self._max_bytes}"
            )
        inputs = [
            await self._read(tensor) if isinstance(tensor, SharedTensor) else tensor
            for tensor in request.inputs
        ]
        request.inputs = inputs

    async def put(self, request: InferenceRequest, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Write those outputs to regions that the request wants there.

        Returns:
            All outputs; of those that were written, the place.

        Raises:
            InvalidRequestError: If a region is not there any more, or too small.
        """
        places = {output.name: output.place for output in request.outputs}
        written: list[Tensor] = []
        for tensor in tensors:
            place = places.get(tensor.name)
            written.append(tensor if place is None else await self._write(tensor, place))
        return written

    async def _read(self, tensor: SharedTensor) -> Tensor:
        where, place = f"input '{tensor.name}'", tensor.place
        region, start = self._find(place, where)
        due = fixed_nbytes(tensor.datatype, tensor.shape)
        if due is not None and due != place.nbytes:
            raise InvalidRequestError(
                f"{where} has {place.nbytes} bytes of shared memory; shape {list(tensor.shape)} "
                f"of {tensor.datatype} needs {due}"
            )
        if place.nbytes > _LONG_COPY_BYTES:
            data = await asyncio.to_thread(_read_all, region, start, place.nbytes)
        else:
            data = _read_all(region, start, place.nbytes)
        if len(data) != place.nbytes:
            raise InvalidRequestError(f"{where}: the shared memory object has shrunk")
        read = Tensor(tensor.name, tensor.datatype, tensor.shape, data)
        if due is None and place.nbytes > _LONG_TEXT_BYTES:
            await self._helper.run(check_data, read)
        else:
            check_data(read)
        return read

    async def _write(self, tensor: Tensor, place: SharedPlace) -> SharedTensor:
        where, nbytes = f"output '{tensor.name}'", len(tensor.data)
        if nbytes > place.nbytes:
            raise InvalidRequestError(
                f"{where} has {nbytes} bytes; the request gives it {place.nbytes} of region "
                f"'{place.region}'"
            )
        region, start = self._find(place, where)
        try:
            if nbytes > _LONG_COPY_BYTES:
                await asyncio.to_thread(_write_all, region, start, tensor.data)
            else:
                _write_all(region, start, tensor.data)
        except OSError as error:
            raise InvalidRequestError(
                f"{where} cannot be written to region '{place.region}': {error.strerror}"
            ) from None
        there = SharedPlace(place.region, place.offset, nbytes)
        return SharedTensor(tensor.name, tensor.datatype, tensor.shape, b"", there)

    def _find(self, place: SharedPlace, where: str) -> tuple[_Region, int]:
        """The region of a place, and where in its object the place begins."""
        region = self._regions.get(place.region)
        if region is None:
            raise InvalidRequestError(
                f"{where}: no shared memory region '{place.region}' is registered"
            )
        if place.offset + place.nbytes > region.status.byte_size:
            raise InvalidRequestError(
                f"{where} ends at byte {place.offset + place.nbytes} of region "
                f"'{place.region}', which has {region.status.byte_size}"
            )
        start = region.status.offset + place.offset
        if start + place.nbytes > os.fstat(region.fd).st_size:
            raise InvalidRequestError(f"{where}: the shared memory object has shrunk")
        return region, start


def _open(key: str, uid: int | None) -> int:
    """Open a shared memory object of the caller's, or of the node's own user.

    Raises:
        InvalidRequestError: If it is none, or somebody else's.
    """
    name = key.removeprefix("/")
    if not 0 < len(os.fsencode(name)) <= _LONGEST_NAME or {"/", "\0"} & set(name) or name[0] == ".":
        raise InvalidRequestError(
            f"the key {key!r} names no shared memory object; allowed: one name, with or without "
            "a slash before it"
        )
    # Not to wait for whoever reads a pipe, and not to go where a link leads.
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(f"{_FOLDER}/{name}", flags)
    except OSError as error:
        raise InvalidRequestError(
            f"unable to open shared memory object '{key}': {error.strerror}"
        ) from None
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode) and found.st_uid in (os.geteuid(), uid):
        return fd
    os.close(fd)
    raise InvalidRequestError(
        f"'{key}' is no shared memory object of the node's user or of the caller's"
    )


def _read_all(region: _Region, start: int, nbytes: int) -> Buffer:
    """As many bytes as there are, up to ``nbytes``."""
    data = bytearray(nbytes)
    count = os.preadv(region.fd, [data], start)
    while 0 < count < nbytes:  # a system call moves 2 GiB at most
        more = os.preadv(region.fd, [memoryview(data)[count:]], start + count)
        if not more:
            break
        count += more
    return data if count == nbytes else memoryview(data)[:count]


def _write_all(region: _Region, start: int, data: Buffer) -> None:
    written = 0
    while written < len(data):
        written += os.pwrite(region.fd, memoryview(data)[written:], start + written)
