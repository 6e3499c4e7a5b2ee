"""One controller per GPU, the knobs that it turns, and why it turned them."""

from treadle.schedule.control.controller import Controller
from treadle.schedule.control.decision import Action, ControlReport, Decision, TaskReport
from treadle.schedule.control.evidence import Standing
from treadle.schedule.control.knobs import Knob, KnobError, Knobs, page_values, turnstile_knobs
from treadle.schedule.control.misses import Misses
from treadle.schedule.control.observation import GateView, Observation, TaskLatency
from treadle.schedule.control.tuning import Tuning

__all__ = [
    "Action",
    "ControlReport",
    "Controller",
    "Decision",
    "GateView",
    "Knob",
    "KnobError",
    "Knobs",
    "Misses",
    "Observation",
    "Standing",
    "TaskLatency",
    "TaskReport",
    "Tuning",
    "page_values",
    "turnstile_knobs",
]
