"""The layout of a turnstile's page, as ``native/page.h`` defines it.

The library describes its own layout (``treadle_layout``); a test compares the two.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from treadle.errors import TreadleError

MAGIC = 0x454C444145525401
ABI = 1
RECORDS = 64
CLASSES = 3
RECORD_BYTES = 256
PAGE_BYTES = 1024 + RECORDS * RECORD_BYTES
SEATED = 1


class TurnstileError(TreadleError):
    """A turnstile cannot be used: the text says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One setting of a page. Its last value stays until someone changes it."""

    index: int
    least: int
    most: int
    usual: int
    meaning: str


def _knobs() -> Mapping[str, Knob]:
    second = 1_000_000_000
    table = (
        ("budget_ns", 0, second, 500_000, "predicted GPU time in flight; 0: no bound"),
        (
            "quiet_budget_ns",
            0,
            second,
            500_000,
            "the same while urgent work is quiet, at last four times it",
        ),
        ("quiet_ns", 0, 3600 * second, second, "silence after which urgent work is quiet"),
        ("slack_ns", 0, 10_000_000, 20_000, "rest in flight under a kernel above the budget"),
        ("linger_ns", 0, second, 0, "how long the gate stays closed after the last mark"),
        ("gap_ns", 0, 100_000_000, 1_000_000, "longest pause learned to be inside a request"),
        ("quantum_ns", 100_000, 10 * second, 10_000_000, "one equal's turn"),
        ("grace_ns", 10_000, second, 200_000, "idle time after which a turn is lost"),
        ("duty_ppm", 0, 1_000_000, 10_000, "least share of a lower class, per million"),
        ("copy_bytes", 65_536, 1 << 40, 1 << 20, "copies of this size and above are gated"),
    )
    return {
        name: Knob(index=index, least=least, most=most, usual=usual, meaning=meaning)
        for index, (name, least, most, usual, meaning) in enumerate(table)
    }


KNOBS: Mapping[str, Knob] = MappingProxyType(_knobs())


class Record(ctypes.Structure):
    """One member's record."""

    _fields_: ClassVar = [
        ("state", ctypes.c_uint32),
        ("class_", ctypes.c_uint32),
        ("generation", ctypes.c_uint32),
        ("hold", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("joined_ns", ctypes.c_uint64),
        ("name", ctypes.c_char * 32),
        ("launches", ctypes.c_uint64),
        ("copies", ctypes.c_uint64),
        ("predicted_ns", ctypes.c_uint64),
        ("busy_until_ns", ctypes.c_uint64),
        ("last_launch_ns", ctypes.c_uint64),
        ("marks_taken", ctypes.c_uint64),
        ("waits", ctypes.c_uint64),
        ("waited_ns", ctypes.c_uint64),
        ("measured_ns", ctypes.c_uint64),
        ("samples", ctypes.c_uint64),
        ("budget_waits", ctypes.c_uint64),
        ("budget_waited_ns", ctypes.c_uint64),
        ("memory_limit_bytes", ctypes.c_uint64),
        ("memory_used_bytes", ctypes.c_uint64),
        ("memory_failures", ctypes.c_uint64),
        ("waiting_since_ns", ctypes.c_uint64),
        ("moved_to", ctypes.c_char * 40),
        ("turns", ctypes.c_uint64),
        ("duty_passes", ctypes.c_uint64),
        ("marked_ns", ctypes.c_uint64),
    ]


class Page(ctypes.Structure):
    """The whole page."""

    _fields_: ClassVar = [
        ("magic", ctypes.c_uint64),
        ("abi", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("generation", ctypes.c_uint64),
        ("records", ctypes.c_uint32),
        ("record_bytes", ctypes.c_uint32),
        ("spare0", ctypes.c_uint64 * 4),
        ("uuid", ctypes.c_char * 64),
        ("marks", ctypes.c_uint64 * CLASSES),
        ("members", ctypes.c_uint64 * CLASSES),
        ("closed_until_ns", ctypes.c_uint64 * (CLASSES - 1)),
        ("bell", ctypes.c_uint32),
        ("spare1", ctypes.c_uint32),
        ("waiting", ctypes.c_uint64),
        ("marks_set", ctypes.c_uint64),
        ("last_urgent_ns", ctypes.c_uint64),
        ("spare2", ctypes.c_uint64 * 4),
        ("turn", ctypes.c_uint64 * CLASSES),
        ("want", ctypes.c_uint64 * CLASSES),
        ("spare3", ctypes.c_uint64 * 2),
        ("knobs", ctypes.c_uint64 * 24),
        ("running_since_ns", ctypes.c_uint64 * RECORDS),
        ("record", Record * RECORDS),
    ]


def new_page(uuid: str) -> bytes:
    """The bytes of a fresh page with every knob at its usual value."""
    page = Page(
        magic=MAGIC,
        abi=ABI,
        size=PAGE_BYTES,
        generation=1,
        records=RECORDS,
        record_bytes=RECORD_BYTES,
        uuid=uuid.encode(),
    )
    for knob in KNOBS.values():
        page.knobs[knob.index] = knob.usual
    return bytes(page)


def why_unusable(page: Page) -> str | None:
    """Why these bytes are not a page that this version understands, or None if they are."""
    if page.magic != MAGIC:
        return "it is not a turnstile"
    if page.abi != ABI:
        return f"its layout is version {page.abi}, this treadle knows {ABI}"
    if (page.size, page.records, page.record_bytes) != (PAGE_BYTES, RECORDS, RECORD_BYTES):
        return "its sizes are wrong"
    return None
