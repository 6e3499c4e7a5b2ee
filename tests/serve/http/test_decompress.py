"""Compressed bodies: all of what they hold, within limits, or an error."""

from __future__ import annotations

import contextlib
import gzip
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from treadle.errors import InvalidRequestError, TooLargeError
from treadle.serve.http.codec import Codec

LIMIT_BYTES = 1 << 20


@pytest.fixture
def codec() -> Codec:
    return Codec(LIMIT_BYTES)


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
}


@pytest.mark.parametrize("encoding", list(COMPRESSIONS))
@pytest.mark.parametrize("nbytes", [0, 1, 100_000, LIMIT_BYTES - 1, LIMIT_BYTES])
async def test_compressed_bodies_are_unpacked(codec: Codec, encoding: str, nbytes: int) -> None:
    body = bytes(range(256)) * (nbytes // 256) + bytes(nbytes % 256)
    assert await codec.decompress(COMPRESSIONS[encoding](body), encoding) == body


@pytest.mark.parametrize("encoding", list(COMPRESSIONS))
async def test_what_unpacks_to_more_than_a_body_may_have_is_refused(
    codec: Codec, encoding: str
) -> None:
    with pytest.raises(TooLargeError, match=f"more than {LIMIT_BYTES} bytes"):
        await codec.decompress(COMPRESSIONS[encoding](bytes(LIMIT_BYTES + 1)), encoding)


async def test_a_bomb_does_not_fill_the_memory(codec: Codec) -> None:
    bomb = gzip.compress(bytes(100 * LIMIT_BYTES))
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeError):
            await codec.decompress(bomb, "gzip")
        assert tracemalloc.get_traced_memory()[1] < 10 * LIMIT_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("encoding", list(COMPRESSIONS))
@pytest.mark.parametrize("kept", [0, 1, 5, -1])
async def test_what_was_cut_short_is_refused(codec: Codec, encoding: str, kept: int) -> None:
    packed = COMPRESSIONS[encoding](b"some text, long enough to be cut")
    with pytest.raises(InvalidRequestError, match=encoding):
        await codec.decompress(packed[:kept], encoding)


@pytest.mark.parametrize("encoding", list(COMPRESSIONS))
async def test_what_is_not_compressed_so_is_refused(codec: Codec, encoding: str) -> None:
    other = "deflate" if encoding == "gzip" else "gzip"
    for body in (b"plain text", COMPRESSIONS[other](b"text")):
        with pytest.raises(InvalidRequestError, match=f"not valid {encoding}"):
            await codec.decompress(body, encoding)


@pytest.mark.parametrize("encoding", ["br", "zstd", "", "identity, gzip", "compress"])
async def test_an_unknown_encoding_is_refused_with_those_that_are_known(
    codec: Codec, encoding: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        await codec.decompress(b"", encoding)
    assert f"'{encoding}'; allowed: gzip, deflate" in str(caught.value)


@pytest.mark.parametrize("encoding", list(COMPRESSIONS))
async def test_what_follows_compressed_data_is_not_silently_dropped(
    codec: Codec, encoding: str
) -> None:
    with pytest.raises(InvalidRequestError, match=encoding):
        await codec.decompress(COMPRESSIONS[encoding](b"text") + b"more", encoding)


async def test_deflate_knows_no_members(codec: Codec) -> None:
    with pytest.raises(InvalidRequestError, match="deflate"):
        await codec.decompress(zlib.compress(b"one") + zlib.compress(b"two"), "deflate")


async def test_a_gzip_body_of_several_members_is_all_of_them(codec: Codec) -> None:
    """As RFC 1952 defines it, and as parallel compressors write it."""
    body = gzip.compress(b"one ") + gzip.compress(b"two ") + gzip.compress(b"three")
    assert await codec.decompress(body, "gzip") == b"one two three"


async def test_the_work_grows_with_the_body_and_not_with_its_square(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a stranger's body of tiny members keeps the node busy for hours."""
    fed = 0
    unpacker_of = zlib.decompressobj

    class Counting:
        """Counts what is handed to all unpackers together."""

        def __init__(self, window_bits: int) -> None:
            self._unpacker: Any = unpacker_of(window_bits)

        def decompress(self, data: bytes, *limit: int) -> Any:
            nonlocal fed
            fed += len(data)
            return self._unpacker.decompress(data, *limit)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._unpacker, name)

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    body = gzip.compress(b"") * 20_000
    with contextlib.suppress(InvalidRequestError):
        assert await codec.decompress(body, "gzip") == b""
    assert fed < 1000 * len(body)


async def test_members_together_may_not_have_more_than_a_body_may(codec: Codec) -> None:
    member = gzip.compress(bytes(LIMIT_BYTES // 2 + 1))
    with pytest.raises(TooLargeError):
        await codec.decompress(member * 2, "gzip")
