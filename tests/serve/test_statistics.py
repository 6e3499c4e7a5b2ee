"""Counters in the form of the statistics extension."""

from __future__ import annotations

from treadle.serve.statistics import ModelStatistics

NEVER = {"count": 0, "ns": 0}


def test_a_model_that_never_ran() -> None:
    content = ModelStatistics().as_json("m", "7")
    assert (content["name"], content["version"], content["last_inference"]) == ("m", "7", 0)
    assert (content["inference_count"], content["execution_count"]) == (0, 0)
    assert set(content["inference_stats"]) == {
        *("success", "fail", "queue", "cache_hit", "cache_miss"),
        *("compute_input", "compute_infer", "compute_output"),
    }
    assert all(figure == NEVER for figure in content["inference_stats"].values())
    assert content["batch_stats"] == []


def test_batches_count_by_row_by_request_and_by_execution() -> None:
    statistics = ModelStatistics()
    for requests, rows in ((2, 4), (1, 4), (1, 1)):
        statistics.executed(
            requests=requests, rows=rows, input_seconds=0.5, run_seconds=2.0, output_seconds=0.25
        )
    content = statistics.as_json("m", "1")
    assert (content["inference_count"], content["execution_count"]) == (9, 3)
    assert content["last_inference"] > 0
    stats = content["inference_stats"]
    assert stats["compute_infer"] == {"count": 4, "ns": 6_000_000_000}
    assert stats["compute_input"] == {"count": 4, "ns": 1_500_000_000}
    assert stats["compute_output"] == {"count": 4, "ns": 750_000_000}
    assert [(b["batch_size"], b["compute_infer"]) for b in content["batch_stats"]] == [
        (1, {"count": 1, "ns": 2_000_000_000}),
        (4, {"count": 2, "ns": 4_000_000_000}),
    ]


def test_requests_that_ended_well_or_not() -> None:
    statistics = ModelStatistics()
    statistics.success.add(0.5)
    statistics.success.add(0.25)
    statistics.fail.add(1.0)
    statistics.queue.add(0.125, count=3)
    stats = statistics.as_json("m", "1")["inference_stats"]
    assert stats["success"] == {"count": 2, "ns": 750_000_000}
    assert stats["fail"] == {"count": 1, "ns": 1_000_000_000}
    assert stats["queue"] == {"count": 3, "ns": 125_000_000}
