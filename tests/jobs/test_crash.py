"""A node that is killed at any moment."""

from __future__ import annotations

from bench.jobs_crash import crash


def test_every_job_ends_as_it_should_exactly_once_however_often_the_node_is_killed() -> None:
    outcome = crash(kills=15, seed=7)
    assert outcome.wrong == []
    assert outcome.kills == 15
    assert outcome.accepted > 15
