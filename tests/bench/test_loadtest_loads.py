from __future__ import annotations

import pytest

from treadle.bench.loadtest.loads import Load, parse_loads
from treadle.errors import ConfigError


def test_a_load_is_a_model_and_what_it_says() -> None:
    assert Load.parse("ranker") == Load(model="ranker")
    assert Load.parse("ranker:rate=100,p99=0.05,priority=Critical,input=a.npy,input=b.npy") == Load(
        model="ranker",
        rate=100.0,
        p99_seconds=0.05,
        priority="critical",
        inputs=("a.npy", "b.npy"),
    )


def test_what_a_load_does_not_say_is_taken_from_the_options() -> None:
    default = Load(model="", rate=10.0, p99_seconds=0.1, priority="normal")
    first, second = parse_loads(["a:rate=5", "b:p99=1,priority=background"], default)
    assert first == Load(model="a", rate=5.0, p99_seconds=0.1, priority="normal")
    assert second == Load(model="b", rate=10.0, p99_seconds=1.0, priority="background")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (":rate=1", r"':rate=1'; allowed: MODEL\["),
        ("a:rate=0", "a: rate: '0'; allowed: a number above 0"),
        ("a:rate=inf", "a: rate: 'inf'; allowed: a number above 0"),
        ("a:p99=soon", "a: p99: 'soon'; allowed: a number above 0"),
        ("a:priority=urgent", "a: priority: unknown priority 'urgent'; allowed: critical"),
        ("a:speed=1", "a: 'speed=1'; allowed: KEY=VALUE with one of rate, p99, priority, input"),
        ("a:rate", "a: 'rate'; allowed: KEY=VALUE"),
    ],
)
def test_what_is_no_load_is_refused(text: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        Load.parse(text)


def test_a_model_comes_once() -> None:
    with pytest.raises(ConfigError, match="a: given twice"):
        parse_loads(["a", "a:rate=1"], Load(model=""))


def test_inputs_for_all_are_refused_where_models_are_several() -> None:
    with pytest.raises(ConfigError, match="--input is for one model"):
        parse_loads(["a", "b"], Load(model="", inputs=("x.npy",)))
