"""Property tests: repeatable and quick by default, random and long with another profile."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci",
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("explore", max_examples=2000, stateful_step_count=100, deadline=None)
if settings.get_current_profile_name() == "default":
    settings.load_profile("ci")
