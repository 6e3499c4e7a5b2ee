"""An address names a page, a metric, and by the metric's name its unit."""

from __future__ import annotations

import pytest

from treadle.errors import ConfigError
from treadle.monitor.latency import parse_latency_address


@pytest.mark.parametrize(
    ("text", "metric", "labels", "unit"),
    [
        ("http://localhost:8000/metrics request_seconds", "request_seconds", {}, 1.0),
        ("https://h/m?x=1  wait_ms", "wait_ms", {}, 1e-3),
        ("http://[::1]:1/m a_milliseconds_bucket", "a_milliseconds", {}, 1e-3),
        (
            'http://h:8000/metrics vllm:e2e_request_latency_seconds{model_name="a b"}',
            "vllm:e2e_request_latency_seconds",
            {"model_name": "a b"},
            1.0,
        ),
        (
            'http://h/m vllm:time_to_first_token_seconds{a="1",b="x\\"},{y"}',
            "vllm:time_to_first_token_seconds",
            {"a": "1", "b": 'x"},{y'},
            1.0,
        ),
        (
            "http://h:8002/metrics nv_inference_request_duration_us",
            "nv_inference_request_duration_us",
            {},
            1e-6,
        ),
        ("http://h/m a_seconds{}", "a_seconds", {}, 1.0),
    ],
)
def test_an_address_is_read(text: str, metric: str, labels: dict[str, str], unit: float) -> None:
    address = parse_latency_address(text)
    assert (address.metric, address.labels, address.unit_seconds) == (metric, labels, unit)
    assert address.url == text.split(maxsplit=1)[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "names no metric"),
        ("http://h/m", "names no metric"),
        ("http://h/m 1_seconds", "names no metric"),
        ("http://h/m a_seconds b_seconds", "names no metric"),
        ("file:///etc/passwd a_seconds", "no http or https address"),
        ("ftp://h/m a_seconds", "no http or https address"),
        ("http:///m a_seconds", "no http or https address"),
        ("http://h:99999/m a_seconds", "no http or https address"),
        ("http://[::1/m a_seconds", "no http or https address"),
        ("http://me:secret@h/m a_seconds", "user name"),
        ("http://h/m a_requests", "must end in _seconds"),
        ('http://h/m a_seconds{b="1}', "cannot be read"),
        ("http://h/m a_seconds{b=1}", "cannot be read"),
        ('http://h/m a_seconds{le="1"}', "le and quantile"),
    ],
)
def test_a_wrong_address_says_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        parse_latency_address(text)
    assert "secret" not in str(caught.value)
