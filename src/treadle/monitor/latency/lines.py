"""Those lines of a metrics page that matter, picked while it comes in.

A page may have megabytes and a reader of Python takes a tenth of a second for each, with the
interpreter held. Only the lines of one metric are kept and read.
"""

from __future__ import annotations

from collections.abc import Iterable

from treadle.errors import TreadleError

_ENDS = (b" ", b"{", b"\t")


class PageError(TreadleError):
    """A metrics page cannot be used: the text says why."""


class LinePicker:
    """Picks the samples of some names out of a page's bytes."""

    def __init__(
        self,
        names: Iterable[str],
        label_values: Iterable[str] = (),
        *,
        most_lines: int,
        most_line_bytes: int,
    ) -> None:
        """Look for lines of these names that have all these labels' values somewhere."""
        self._values = tuple(_quoted(value) for value in label_values)
        self._starts = tuple(sorted(b"\n" + name.encode() for name in names))
        self._most_lines, self._most_line_bytes = most_lines, most_line_bytes
        self._rest = b"\n"
        self.lines: list[bytes] = []

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes.

        Raises:
            PageError: If a line is too long, or too many are of this metric.
        """
        text = self._rest + chunk
        end = text.rfind(b"\n")
        self._rest = text[end:]
        if len(self._rest) > self._most_line_bytes:
            raise PageError(f"a line is longer than {self._most_line_bytes} bytes")
        self._pick(text[: end + 1])

    def finish(self) -> None:
        """The page has ended."""
        rest, self._rest = self._rest, b"\n"
        self._pick(rest + b"\n")

    def _pick(self, text: bytes) -> None:
        """Pick from lines that are whole; the text begins and ends at the end of a line."""
        for start in self._starts:
            found = text.find(start)
            while found >= 0:
                end = text.index(b"\n", found + 1)
                line = text[found + 1 : end]
                if text[found + len(start) : found + len(start) + 1] in _ENDS and all(
                    value in line for value in self._values
                ):
                    self.lines.append(line)
                    if len(self.lines) > self._most_lines:
                        raise PageError(
                            f"more than {self._most_lines} series: name fewer with a label,"
                            ' such as {model="a"}'
                        )
                found = text.find(start, end)


def _quoted(value: str) -> bytes:
    """A label's value as a page has it."""
    escaped = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f'"{escaped}"'.encode()
