"""Builds the launch gate's library into the package, for wheels and editable installs alike.

Without a C compiler the build asks for the one in ``ziglang``. Where even that fails the package
installs without the library, and says what is missing when the gate is asked for.
"""

from __future__ import annotations

import importlib.util
import os
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path("src/treadle/turnstile")


def _gate_build(root: str) -> ModuleType:
    """The package's own build file, which imports nothing of the package."""
    spec = importlib.util.spec_from_file_location(
        "treadle_gate_build", Path(root) / PACKAGE / "build.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class GateBuildHook(BuildHookInterface[Any]):
    """Compiles ``libtreadle_gate.so``, or leaves a note of why it could not."""

    def dependencies(self) -> list[str]:
        return ["ziglang>=0.13"] if _gate_build(self.root).needs_ziglang() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        gate = _gate_build(self.root)
        folder = Path(self.root) / PACKAGE
        library, note = folder / gate.LIBRARY, folder / gate.MISSING
        try:
            gate.build(library)
        except gate.BuildError as error:
            self.app.display_warning(f"the launch gate was not built: {error}")
            library.unlink(missing_ok=True)
            note.write_text(f"{error}\n")
        else:
            note.unlink(missing_ok=True)
            build_data["pure_python"] = False
            # Only the machine matters: the library uses no Python.
            system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            if os.environ.get("TREADLE_WHEEL_PLATFORM"):
                system = os.environ["TREADLE_WHEEL_PLATFORM"]
            build_data["tag"] = f"py3-none-{system}"
        for made in (library, note):
            if made.exists() and version != "editable":  # which finds it in the source tree
                build_data["force_include"][str(made)] = f"treadle/turnstile/{made.name}"
