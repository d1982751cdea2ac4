"""Standard streams that let a verb run to its end however the process was started: closed, full, unread, or
of few letters."""

import codecs
import errno
import io
import os
import sys
import threading
import unicodedata
from typing import Any, TextIO

from linbench.common import escape

INPUT, OUTPUT, ERROR = 0, 1, 2
_DEGRADE = "linbench.degrade"
_ASCII = {
    "±": "+-", "–": "-", "—": "-", "−": "-", "→": "->", "←": "<-", "≥": ">=", "≤": "<=", "≠": "!=", "×": "x", "·": ".", "•": "*", "†": "*",
    "‘": "'", "’": "'", "“": '"', "”": '"', **dict.fromkeys("─━═╌╍╴╶╸╺", "-"), **dict.fromkeys("│┃║╎╏╵╷", "|"), **dict.fromkeys("█▉▊▋▌▍▎▏▓▒░", "#"),
}  # fmt: skip
"""What stands for a character that a stream cannot encode; corners and crossings of boxes are '+'."""


class _Descriptor(io.FileIO):
    """The descriptor of a standard stream. What it does not take is dropped, since what a verb has done must
    not be lost to what it says."""

    refused: str | None = None
    """Why something was dropped; None: nothing was, or the reader has gone away, who has seen enough."""

    def __init__(self, number: int, *, shut: bool) -> None:
        super().__init__(number, "wb", closefd=False)
        self.shut, self.lost = shut, False

    def write(self, data: Any, /) -> int:
        if not self.lost:
            try:
                if not self.shut:
                    return super().write(data)
                self.refused = "it is closed"
            except OSError as error:
                self.refused = None if error.errno == errno.EPIPE else (error.strerror or str(error))
            self.lost = True
        return memoryview(data).nbytes


def prepare() -> None:
    """Make descriptors 0 to 2 valid, in children too, and let standard output and error drop what they cannot
    take and degrade what they cannot encode.

    Streams that something else stands for, as in tests and notebooks, keep their place.
    """
    codecs.register_error(_DEGRADE, _degraded)
    shut = make_valid()
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(INPUT, closefd=False)), "utf-8")
    sys.stdout = _robust(sys.stdout, sys.__stdout__, OUTPUT, shut=OUTPUT in shut)
    sys.stderr = _robust(sys.stderr, sys.__stderr__, ERROR, shut=ERROR in shut)


def make_valid() -> set[int]:
    """Open the null device in place of those of the descriptors 0 to 2 that are closed, and return which
    these were.

    Without this the next file or pipe gets a number below 3, and is written over by whoever prints.
    """
    missing = {number for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)) if stream is None}
    shut = missing | {number for number in (INPUT, OUTPUT, ERROR) if not _is_open(number)}
    for number in sorted(shut):
        if not _is_open(number):
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, number, inheritable=True)
            if null != number:
                os.close(null)
            os.set_inheritable(number, True)
    return shut


def keep_output() -> None:
    """Keep standard output for what the main thread prints with Python; call `prepare` first.

    All else goes to standard error: what libraries, child processes and handlers of the exit write to
    descriptor 1, and what other threads print.
    """
    raw = (
        sys.stdout.buffer.raw
        if isinstance(sys.stdout, io.TextIOWrapper) and isinstance(sys.stdout.buffer, io.BufferedWriter)
        else None
    )
    if not isinstance(raw, _Descriptor):
        return
    sys.stdout.flush()
    ours = _wrapped(_Descriptor(os.dup(OUTPUT), shut=raw.shut), sys.stdout)
    os.dup2(ERROR, OUTPUT)
    stream: Any = _OfTheMainThread(ours)
    sys.stdout = stream


class _OfTheMainThread:
    """A stream to that thread; to all others it is standard error."""

    def __init__(self, ours: TextIO) -> None:
        self._ours = ours

    def __getattr__(self, name: str) -> Any:
        return getattr(
            self._ours if threading.current_thread() is threading.main_thread() else sys.stderr, name
        )


def refusal() -> str | None:
    """Return why standard output has not taken all that was written to it; None: it has, or its reader went
    away."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.refused if isinstance(raw, _Descriptor) else None


def tell(sentence: str) -> None:
    """Write one line to standard error, whatever the sentence repeats of what others wrote."""
    print(escape.one_line(sentence), file=sys.stderr, flush=True)


def _robust(stream: TextIO | None, own: TextIO | None, number: int, *, shut: bool) -> TextIO:
    if isinstance(getattr(getattr(stream, "buffer", None), "raw", None), _Descriptor):
        assert stream is not None
        return stream
    if stream is not None and stream is not own:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_DEGRADE)
        return stream
    if stream is not None:
        stream.flush()
    return _wrapped(_Descriptor(number, shut=shut), stream, at_once=number == ERROR)


def _wrapped(raw: _Descriptor, like: TextIO | None, *, at_once: bool = False) -> TextIO:
    """Return a stream of text to a descriptor, with the encoding of another."""
    encoding, through = getattr(like, "encoding", None) or "utf-8", getattr(like, "write_through", False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding,
        _DEGRADE,
        line_buffering=at_once or raw.isatty(),
        write_through=through,
    )


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _degraded(error: UnicodeError) -> tuple[str | bytes, int]:
    """Return what stands for the first character that cannot be encoded; for a byte of a path that is no text
    the byte itself."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character, after = error.object[error.start], error.start + 1
    if "\udc80" <= character <= "\udcff":
        return bytes([ord(character) - 0xDC00]), after
    if "BOX DRAWINGS" in unicodedata.name(character, ""):
        return _ASCII.get(character, "+"), after
    return (
        _ASCII.get(character)
        or unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
        or "?",
        after,
    )
