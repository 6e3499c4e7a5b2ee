"""What lies in a turnstile folder that others may write, too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from treadle.monitor.gate import GatePage
from treadle.turnstile import Turnstile, TurnstileError


@pytest.mark.parametrize("put", ["a link", "a pipe", "a folder"])
def test_only_a_file_is_taken_for_a_page(tmp_path: Path, put: str) -> None:
    place = tmp_path / "GPU-1"
    Turnstile.open(tmp_path, "GPU-2").close()
    if put == "a link":
        place.symlink_to(tmp_path / "GPU-2")
    elif put == "a pipe":  # nobody is at its other end: to wait for that is to wait for ever
        os.mkfifo(place)
    else:
        place.mkdir()
    with pytest.raises(TurnstileError, match="cannot open the turnstile"):
        Turnstile.open(tmp_path, "GPU-1", create=False)
    with pytest.raises(TurnstileError, match="cannot open the turnstile"):
        GatePage(place)
