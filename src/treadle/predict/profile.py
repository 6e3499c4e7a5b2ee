"""How long a model's batches take, as measured before: the file that ``treadle profile`` writes."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Literal, Self

import msgspec
from msgspec import Meta, Struct

from treadle.errors import TreadleError

FORMAT = 1
"""Of the file. Files of another are not read."""
_MOST_BYTES = 1 << 20

Positive = Annotated[float, Meta(gt=0)]


class ProfileError(TreadleError):
    """A file cannot be used as a profile; the text says why."""


class Subject(Struct, frozen=True, kw_only=True):
    """What a profile is of. Its figures hold for nothing else."""

    model: str
    source: str
    """The hash of its file, or the name of its factory."""
    device: str
    """As its maker names it."""
    dtype: str = ""
    """Of a PyTorch model's floating point; empty: as it is."""
    threads: int = 0
    """On the CPU, how many the model has; 0 on a GPU."""


class Point(Struct, frozen=True, kw_only=True):
    """The figures of one batch size."""

    rows: Annotated[int, Meta(ge=1)]
    sm_share: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """Of the GPU's SMs, what the model could use."""
    median_seconds: Positive
    p95_seconds: Positive
    rows_per_second: Positive
    runs: Annotated[int, Meta(ge=1)]
    clock: Literal["device", "wall"] = "wall"
    """Whose time it is: the device's, or that of the worker, which waits for it."""

    @classmethod
    def of_runs(
        cls,
        rows: int,
        sm_share: float,
        seconds: Sequence[float],
        clock: Literal["device", "wall"],
    ) -> Self:
        """The figures of runs that took so many seconds each."""
        ordered = sorted(seconds)
        middle = median(ordered)
        return cls(
            rows=rows,
            sm_share=sm_share,
            median_seconds=middle,
            rows_per_second=rows / middle,
            p95_seconds=ordered[math.ceil(0.95 * len(ordered)) - 1],
            runs=len(ordered),
            clock=clock,
        )


class Profile(Struct, frozen=True, kw_only=True):
    """A whole file."""

    format: int = FORMAT
    subject: Subject
    date: str
    """When it was measured, as ISO 8601 has it."""
    driver: str = ""
    """Of the device and, after a slash, of CUDA; empty where there is none."""
    versions: dict[str, str] = {}
    """Of the software, by name."""
    inputs: dict[str, tuple[int, ...]] = {}
    """The shapes that one row was measured with."""
    points: tuple[Point, ...]
    left_out: tuple[str, ...] = ()
    """What could not be measured, each with its reason."""

    @property
    def shares(self) -> list[float]:
        """The shares of SMs that there are figures for."""
        return sorted({point.sm_share for point in self.points})

    def seconds(self, sm_share: float = 1.0) -> dict[int, float]:
        """The median seconds by batch size; empty if that share was not measured."""
        return {
            point.rows: point.median_seconds
            for point in self.points
            if math.isclose(point.sm_share, sm_share, abs_tol=1e-6)
        }

    def differences(self, subject: Subject) -> list[str]:
        """In what it is of something else than ``subject``, in words."""
        found = []
        for what, mine, asked in (
            ("model", self.subject.model, subject.model),
            ("version of the model's file or factory", self.subject.source, subject.source),
            ("device", self.subject.device, subject.device),
            ("dtype", self.subject.dtype or "none", subject.dtype or "none"),
            ("number of threads", str(self.subject.threads), str(subject.threads)),
        ):
            if mine != asked:
                found.append(f"of another {what} ({mine}; here it is {asked})")
        return found


class _Head(Struct):
    format: int


def read_profile(path: Path) -> Profile:
    """Read a profile.

    Raises:
        ProfileError: If there is none, or it is damaged or of another version.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from None
    if len(data) > _MOST_BYTES:
        raise ProfileError(f"{path}: it is larger than a profile can be")
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.format != FORMAT:
            raise ProfileError(
                f"{path}: it is of format {head.format}, and {FORMAT} is read: measure it anew"
            )
        profile = msgspec.json.decode(data, type=Profile)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path}: it is damaged, or no profile: {error}") from None
    if not profile.points:
        raise ProfileError(f"{path}: it has no figures")
    return profile


def write_profile(profile: Profile, path: Path) -> None:
    """Write a profile, whole or not at all.

    Raises:
        ProfileError: If that cannot be done.
    """
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(profile)) + b"\n")
        beside.replace(path)
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from None
