"""The virtual environments of the servers that treadle is compared with."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.servers.errors import BenchError

ROOT = Path(__file__).parents[2]
"""The repository's root."""

MODEL_IN_PACKAGE = "magika/models/standard_v3_3/model.onnx"
"""The real model of the comparison, inside the package ``magika``."""

REPORTED_PACKAGES = (
    *("treadle", "mlserver", "litserve", "uvicorn", "uvloop", "httptools", "starlette", "fastapi"),
    *("pydantic", "pyzmq", "msgspec", "orjson", "numpy", "onnxruntime", "magika"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A Python installation that one of the servers runs in."""

    name: str
    python: Path
    packages_folder: Path

    def script(self, name: str) -> Path:
        """Path of a command that a package installed."""
        return self.python.with_name(name)

    @property
    def model_file(self) -> Path:
        """Path of the real model; it need not exist in treadle's own environment."""
        return self.packages_folder / MODEL_IN_PACKAGE

    def versions(self) -> dict[str, str]:
        """Versions of the packages that matter to the result, by name."""
        found = importlib.metadata.distributions(path=[str(self.packages_folder)])
        versions = {d.name.lower().replace("_", "-"): d.version for d in found}
        return {name: versions[name] for name in REPORTED_PACKAGES if name in versions}


def own_environment() -> Environment:
    """The environment that this program and treadle run in."""
    numpy = importlib.util.find_spec("numpy")
    if numpy is None or numpy.origin is None:
        raise BenchError("numpy is missing: run with the project's own environment")
    return Environment(
        name="treadle",
        python=Path(sys.executable),
        packages_folder=Path(numpy.origin).parents[1],
    )


def prepare(name: str) -> Environment:
    """Make the environment ``name`` from its pinned requirements, unless it is there already.

    Raises:
        BenchError: If it could not be made.
    """
    requirements = Path(__file__).with_name(f"requirements-{name}.txt")
    folder = ROOT / ".bench" / name
    stamp = folder / "made-from"
    wanted = f"{sys.version}\n{hashlib.sha256(requirements.read_bytes()).hexdigest()}\n"
    if not stamp.is_file() or stamp.read_text() != wanted:
        print(f"making {folder.relative_to(ROOT)} from {requirements.name} ...", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        _command(name, [sys.executable, "-m", "venv", str(folder)])
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        # The lists are complete, and of magika only the model file is wanted: hence --no-deps.
        _command(name, [*pip, "--no-deps", "--requirement", str(requirements)])
        stamp.write_text(wanted)
    major, minor = sys.version_info[:2]
    return Environment(
        name=name,
        python=folder / "bin" / "python",
        packages_folder=folder / "lib" / f"python{major}.{minor}" / "site-packages",
    )


def _command(name: str, command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise BenchError(f"environment {name!r}: {' '.join(command)}\n{result.stderr}")


def main() -> None:
    for name in sys.argv[1:] or ("litserve", "mlserver"):
        print(prepare(name).packages_folder)


if __name__ == "__main__":
    main()
