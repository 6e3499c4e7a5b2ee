"""One base class, and what each kind of error says of a request."""

from __future__ import annotations

import pickle

import pytest

from treadle import errors

ALL = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.TreadleError)
]


def test_every_error_has_the_one_base() -> None:
    names = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, Exception)
    }
    assert names == {kind.__name__ for kind in ALL}
    assert len(ALL) >= 10


def test_errors_of_the_node_are_not_answers_to_requests() -> None:
    assert not issubclass(errors.ConfigError, errors.RequestError)
    assert not issubclass(errors.StartError, errors.RequestError)


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (errors.TooLargeError, errors.InvalidRequestError),
        (errors.DeadlineError, errors.UnavailableError),
        (errors.ModelError, errors.RequestError),
        (errors.ModelLoadError, errors.RequestError),
        (errors.NotFoundError, errors.RequestError),
        (errors.ForbiddenError, errors.RequestError),
    ],
)
def test_kinds(kind: type[Exception], base: type[Exception]) -> None:
    assert issubclass(kind, base)


def test_what_failed_is_not_taken_for_what_may_be_tried_again() -> None:
    for kind in (errors.ModelError, errors.InvalidRequestError, errors.NotFoundError):
        assert not issubclass(kind, errors.UnavailableError)


@pytest.mark.parametrize("kind", ALL)
def test_an_error_keeps_its_text_also_on_its_way_between_processes(
    kind: type[errors.TreadleError],
) -> None:
    error = kind("what went wrong")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(error) == str(copy) == "what went wrong"


def test_an_unavailable_error_may_say_when_to_come_again() -> None:
    assert errors.UnavailableError("full").retry_after_seconds is None
    error = errors.UnavailableError("full", retry_after_seconds=2.5)
    assert error.retry_after_seconds == 2.5
    assert pickle.loads(pickle.dumps(error)).retry_after_seconds == 2.5
