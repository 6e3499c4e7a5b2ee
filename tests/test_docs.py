"""What the documents show must be true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from treadle.node.config import GrpcTable, HttpTable, NodeTable, ScheduleTable, load_config
from treadle.serve.config import ModelConfig
from treadle.serve.padding import PaddingConfig

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not {".venv", ".bench", "inputs"} & set(path.relative_to(ROOT).parts)
)
TOML_BLOCKS = [
    pytest.param(block, id=f"{path.relative_to(ROOT)}-{number}")
    for path in DOCUMENTS
    for number, block in enumerate(re.findall(r"```toml\n(.*?)```", path.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("block", TOML_BLOCKS)
def test_every_configuration_shown_is_accepted(block: str, tmp_path: Path) -> None:
    file = tmp_path / "treadle.toml"
    file.write_text(block)
    load_config(file, {})


def test_the_configuration_page_shows_every_key() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    for table in (NodeTable, HttpTable, GrpcTable, ScheduleTable, ModelConfig, PaddingConfig):
        for key in table.__struct_fields__:
            shown = rf"^({key} = |\[model\.{key}\])"
            assert re.search(shown, page, re.MULTILINE), f"{key} of {table.__name__}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", path.read_text()):
        assert (path.parent / target).exists(), target


def test_the_structure_page_names_every_module() -> None:
    page = (ROOT / "docs" / "structure.md").read_text()
    source = ROOT / "src" / "treadle"
    for path in source.rglob("*.py"):
        parts = path.relative_to(source).with_suffix("").parts
        # Packages that are described as a whole need no line for each of their modules.
        whole = {"cli", "bench", "client", "turnstile"} & set(parts[:1]) or parts[:2] in {
            ("serve", "worker"),
            ("serve", "http"),
            ("serve", "grpc"),
            ("programs", "supervisor"),
        }
        if parts[-1] not in {"__init__", "__main__"} and not whole:
            assert f"`{'.'.join(parts)}`" in page, ".".join(parts)
