"""The ``[jobs]`` table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from treadle.errors import ConfigError
from treadle.node.config import JobsTable, load_config

PAGE = Path(__file__).parent.parent.parent / "docs" / "jobs.md"


def load(tmp_path: Path, text: str) -> JobsTable:
    file = tmp_path / "treadle.toml"
    file.write_text(f"[jobs]\n{text}\n")
    return load_config(file, {}).jobs


def test_what_is_not_said_is_as_the_page_says(tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n\[jobs\]\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert load(tmp_path, block) == JobsTable() == load(tmp_path, "")
    for key in JobsTable.__struct_fields__:
        assert f"| `{key}` | `" in PAGE.read_text()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("keep = -1", "jobs.keep: Expected `int` >= 0"),
        ("keep = 'all'", "jobs.keep: Expected `int`"),
        ("keep = 100000000", "jobs.keep: Expected `int` <= 10000000"),
        ("keeps = 1", "jobs.keeps: unknown key (did you mean 'keep'?)"),
        ("enabled = 1", "jobs.enabled: Expected `bool`"),
        ("memory_fraction = 2", "jobs.memory_fraction: Expected `float` <= 1"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, text)
    assert says in str(error.value)
