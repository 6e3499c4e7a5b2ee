"""Logs: for people on standard error, as JSON lines in the state folder."""

from __future__ import annotations

import logging
import logging.handlers
import sys
from datetime import UTC, datetime
from pathlib import Path

import orjson

from treadle.errors import StartError

_FIELDS = ("model", "worker", "status", "request_id")
_FILE_BYTES = 10 << 20
_FILES_KEPT = 3


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message and what is known besides."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extras(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(entry, default=str).decode()


class TextFormatter(logging.Formatter):
    """One readable line: time, level, message, and what is known besides."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        # What a caller chose must not look like a line of its own, or speak to the terminal.
        extras = "".join(
            f" {k}={v if str(v).isprintable() else repr(v)}" for k, v in _extras(record).items()
        )
        line = f"{time} {record.levelname.lower():7} {record.getMessage()}{extras}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class LogFile(logging.handlers.RotatingFileHandler):
    """What a full disk does not take is lost: said once until it takes something again."""

    def __init__(self, file: Path) -> None:
        self._trouble = self._said = ""
        super().__init__(file, maxBytes=_FILE_BYTES, backupCount=_FILES_KEPT, encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        self._trouble = ""
        super().emit(record)
        if self._trouble not in ("", self._said):
            print(f"{self.baseFilename} is not written: {self._trouble}", file=sys.stderr)
        self._said = self._trouble

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self._trouble = error.strerror or str(error)
        else:
            super().handleError(record)


def set_up_logging(level: str, form: str, file: Path | None) -> None:
    """Send the logs of treadle, uvicorn and asyncio to standard error, and as JSON to ``file``."""
    console = logging.StreamHandler(sys.stderr)
    console.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    handlers: list[logging.Handler] = [console]
    if file is not None:
        try:
            rotating = LogFile(file)
        except OSError as error:
            raise StartError(f"cannot write the log {file}: {error.strerror}") from error
        rotating.setFormatter(JsonFormatter())
        handlers.append(rotating)
    for name, threshold in (
        ("treadle", level.upper()),
        ("uvicorn", "WARNING"),
        ("asyncio", "ERROR"),
    ):
        logger = logging.getLogger(name)
        logger.handlers[:] = handlers
        logger.setLevel(threshold)
        logger.propagate = False


def _extras(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name in _FIELDS if (value := getattr(record, name, "")) != ""}
