"""Configuration files that are right, but for one thing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from treadle.node.config import NodeConfig, load_config

MODEL = """
[[model]]
name = "m"
factory = "module:callable"
"""


def load(
    folder: Path, text: str, environment: Mapping[str, str] | None = None
) -> tuple[Path, NodeConfig]:
    """Write a file and read it, with no variables but those given."""
    file = folder / "treadle.toml"
    file.write_text(text, encoding="utf-8")
    return file, load_config(file, environment or {})
