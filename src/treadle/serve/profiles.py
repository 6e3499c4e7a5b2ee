"""Which profile is a model's, and what it says of the model's objective."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from treadle.errors import ModelLoadError
from treadle.predict.profile import Profile, ProfileError, Subject, read_profile
from treadle.serve.config import ModelConfig
from treadle.serve.worker.models import resolve

FOLDER = "profiles"
"""In the state folder."""
_NAME_CHARACTERS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLatency:
    """What is known of a model before it serves."""

    seconds: Mapping[int, float] = field(default_factory=dict)
    """By batch size; empty if nothing is known."""
    file: Path | None = None
    """What it is known from."""
    notes: tuple[str, ...] = ()
    """What its operator should know, in words."""


FindLatency = Callable[[ModelConfig], Awaitable[KnownLatency]]
"""Looks up what is known of a model."""


async def nothing_known(config: ModelConfig) -> KnownLatency:
    """Of no model."""
    return KnownLatency()


def subject_of(config: ModelConfig, folder: Path, device: str, threads: int) -> Subject:
    """What a profile of a model must be of.

    Args:
        config: Of the model.
        folder: The configuration's.
        device: What it runs on, as its maker names it.
        threads: How many it has on the CPU.

    Raises:
        ModelLoadError: If its file is not there.
    """
    source = config.factory or ""
    if not source:
        path = resolve(config.source, folder)
        try:
            with path.open("rb") as file:
                source = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
        except OSError as error:
            raise ModelLoadError(f"{path}: {error.strerror}") from None
    return Subject(
        model=config.name,
        source=source,
        device=device,
        dtype=config.dtype or "",
        threads=threads if config.device == "cpu" else 0,
    )


def usual_path(subject: Subject, state: Path) -> Path:
    """Where the profile of a subject lies in the state folder."""
    words = "\0".join((subject.source, subject.device, subject.dtype, str(subject.threads)))
    digest = hashlib.sha256(words.encode(errors="surrogateescape")).hexdigest()
    return state / FOLDER / f"{subject.model}-{digest[:_NAME_CHARACTERS]}.json"


def find_latency(config: ModelConfig, folder: Path, state: Path, subject: Subject) -> KnownLatency:
    """Read the profile that a model names, or else the one in the state folder, if any.

    One that cannot be used is a note, never an error.
    """
    path = usual_path(subject, state) if config.profile is None else folder / config.profile
    if config.profile is None and not path.exists():
        return KnownLatency()
    try:
        profile = read_profile(path)
    except ProfileError as error:
        return KnownLatency(notes=(f"its profile is not used: {error}",))
    seconds = profile.seconds(config.sm_share)
    if not seconds:
        there = ", ".join(f"{share:g}" for share in profile.shares)
        why = f"it has no figures for sm_share = {config.sm_share:g}, only for {there}"
        return KnownLatency(notes=(f"its profile is not used: {path}: {why}",))
    different = profile.differences(subject)
    if different:
        return KnownLatency(
            seconds=seconds, file=path, notes=(f"its profile {path} is {', '.join(different)}",)
        )
    note = why_impossible(config, profile)
    return KnownLatency(seconds=seconds, file=path, notes=(note,) if note else ())


def why_impossible(config: ModelConfig, profile: Profile) -> str:
    """Why an objective can never be met; empty if it can."""
    objective, one = config.p99_seconds, profile.seconds(config.sm_share).get(1)
    if objective is None or one is None or one <= objective:
        return ""
    return (
        f"p99_seconds = {objective:g} can never be met: by its profile one row alone takes "
        f"{one:.3g} s on {profile.subject.device}"
    )
