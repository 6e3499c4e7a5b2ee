"""The turnstile: one page of shared memory per GPU, and the gate that obeys it.

Critical work marks itself busy on the page; the launch gate inside every other process looks at
it before each kernel launch. See ``native/`` for the gate and ``page.py`` for the layout.
"""

from treadle.turnstile.folder import default_folder
from treadle.turnstile.library import GateLibrary, gate_library_path, load_gate_library
from treadle.turnstile.member import Seat, assign, critical, join, using
from treadle.turnstile.page import KNOBS, Knob, TurnstileError
from treadle.turnstile.turnstile import Member, PageSnapshot, Turnstile

__all__ = [
    "KNOBS",
    "GateLibrary",
    "Knob",
    "Member",
    "PageSnapshot",
    "Seat",
    "Turnstile",
    "TurnstileError",
    "assign",
    "critical",
    "default_folder",
    "gate_library_path",
    "join",
    "load_gate_library",
    "using",
]
