"""Finds an ONNX file inside an installed package, and opens it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from onnxruntime import InferenceSession, SessionOptions


def package_file(package: str, *parts: str) -> Path:
    """Locate a file of an installed package without importing the package.

    Importing would need what the packages' own code needs: torch for ``silero_vad``, OpenCV for
    ``rapidocr``. Only their models are wanted here.

    Raises:
        ModuleNotFoundError: If the package is not installed.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            f"the model comes from the package {package!r}, which is not installed; "
            "run: pip install --no-deps -r requirements/quickstart.txt",
            name=package,
        )
    return Path(spec.submodule_search_locations[0], *parts)


def open_session(path: Path, threads: int) -> InferenceSession:
    """Open a model on the CPU.

    Args:
        path: The ``.onnx`` file.
        threads: How many threads a single operator is spread over.
    """
    options = SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # By default the threads spin while they wait for work, on cores that other models need.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3  # errors only
    return InferenceSession(path, options, providers=["CPUExecutionProvider"])
