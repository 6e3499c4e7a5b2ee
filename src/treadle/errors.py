"""One base class for what can go wrong, and few subclasses, each raised somewhere.

Transport codes (HTTP, exit codes) are not chosen here: the edges map these classes onto them.
"""

from __future__ import annotations


class TreadleError(Exception):
    """Base of every error that treadle raises on purpose. Its text is meant for a person."""


class ConfigError(TreadleError):
    """A configuration file cannot be used: names the file, the key and what is allowed."""


class StartError(TreadleError):
    """The node cannot start here: port in use, no permission, another node running."""


class RequestError(TreadleError):
    """Base of the errors that answer one inference or management request."""


class InvalidRequestError(RequestError):
    """The request is wrong in itself; sending it again cannot help."""


class TooLargeError(InvalidRequestError):
    """The request is larger than the operator allows."""


class AbandonedError(RequestError):
    """The caller has gone: there is nobody to answer any more."""


class ForbiddenError(RequestError):
    """The caller has not shown that it may do this."""


class NotFoundError(RequestError):
    """No model or version of that name is served here."""


class UnavailableError(RequestError):
    """The server cannot take this request now; another time it may."""

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class DeadlineError(UnavailableError):
    """The request can no longer be answered by its deadline, so it is not run."""


class ModelError(RequestError):
    """The model failed on this request: it raised, died, hung or returned nonsense."""


class ModelLoadError(RequestError):
    """A model could not be loaded; the text says why."""
