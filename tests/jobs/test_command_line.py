"""What a person may type about jobs."""

from __future__ import annotations

import pytest

from treadle.cli.jobs import parse_numbers
from treadle.cli.submit import parse_array
from treadle.errors import TreadleError
from treadle.units import parse_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1.5h", 5400), ("30m", 1800), ("2d", 172800), (" 1 H ", 3600)],
)
def test_a_length_of_time(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0s", "-1", "1w", "1h30m", "h", "inf", "nan", "1e3"])
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(TreadleError, match="allowed: 250ms, 90s, 30m, 12h, 2d"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0-3", [0, 1, 2, 3]),
        ("0-9:3", [0, 3, 6, 9]),
        ("1,5,7-9", [1, 5, 7, 8, 9]),
        ("4", [4]),
        (" 1 , 2 ", [1, 2]),
    ],
)
def test_the_numbers_of_an_array(text: str, numbers: list[int]) -> None:
    assert parse_array(text) == numbers


@pytest.mark.parametrize(
    "text", ["", "a", "-1", "3-", "1-2-3", "0-9:0", "9-1", "1,,2", "0-100000", "1;2", "1.5"]
)
def test_what_are_no_numbers_of_an_array(text: str) -> None:
    with pytest.raises(TreadleError, match="--array: "):
        parse_array(text)


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [(["17"], [17]), (["17-19"], [17, 18, 19]), (["3", "1-2"], [3, 1, 2]), (["5-5"], [5])],
)
def test_numbers_of_jobs(texts: list[str], numbers: list[int]) -> None:
    assert parse_numbers(texts) == numbers


@pytest.mark.parametrize("text", ["", "x", "-3", "3-", "1-2-3", "²", "1 2"])
def test_what_is_no_job(text: str) -> None:
    with pytest.raises(TreadleError, match="is no job; allowed: its number, or 17-26"):
        parse_numbers([text])


@pytest.mark.parametrize("texts", [["5-4"], ["1-100001"], ["1-60000", "1-60000"]])
def test_too_many_jobs_or_none(texts: list[str]) -> None:
    with pytest.raises(TreadleError, match="allowed: 1 to 100000 jobs"):
        parse_numbers(texts)


def test_a_command_for_one_job_takes_one() -> None:
    with pytest.raises(TreadleError, match="allowed: 1 to 1 jobs"):
        parse_numbers(["1-2"], most=1)
