"""The one error of this program."""


class BenchError(Exception):
    """The comparison cannot go on; the message says why, and what to do where that is known."""
