"""Standard streams with which a verb finishes even if they are closed, full, unread or limited to ASCII."""

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
    "±": "+-",
    "–": "-",
    "—": "-",
    "−": "-",
    "→": "->",
    "←": "<-",
    "≥": ">=",
    "≤": "<=",
    "≠": "!=",
    "×": "x",
    "·": ".",
    "•": "*",
    "†": "*",
    "‘": "'",
    "’": "'",
    "“": '"',
    "”": '"',
    **dict.fromkeys("─━═╌╍╴╶╸╺", "-"),
    **dict.fromkeys("│┃║╎╏╵╷", "|"),
    **dict.fromkeys("█▉▊▋▌▍▎▏▓▒░", "#"),
}
"""Replacements for characters that a stream cannot encode. Corners and crossings of boxes become '+'."""


class _Descriptor(io.FileIO):
    """The descriptor of a standard stream.

    Output that it refuses is dropped, so that results are not lost.
    """

    refused: str | None = None
    """The reason why output was dropped; None: none was, or the reader closed the pipe on purpose."""

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
    """Make descriptors 0 to 2 valid, and let output streams drop or replace what they cannot write.

    Streams that were replaced, as in tests and notebooks, stay as they are.
    """
    codecs.register_error(_DEGRADE, _replacement)
    shut = make_valid()
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(INPUT, closefd=False)), "utf-8")
    sys.stdout = _make_robust(sys.stdout, sys.__stdout__, OUTPUT, shut=OUTPUT in shut)
    sys.stderr = _make_robust(sys.stderr, sys.__stderr__, ERROR, shut=ERROR in shut)


def make_valid() -> set[int]:
    """Open the null device for each of the descriptors 0 to 2 that is closed, and return these.

    Otherwise the next file or pipe would get such a number, and printing would write into it.
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
    """Reserve standard output for what the main thread prints with Python; call `prepare` first.

    All other output goes to standard error: what libraries, child processes and exit handlers write to
    descriptor 1, and what other threads print.
    """
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if not isinstance(raw, _Descriptor):
        return
    sys.stdout.flush()
    reserved = _wrap(_Descriptor(os.dup(OUTPUT), shut=raw.shut), sys.stdout)
    os.dup2(ERROR, OUTPUT)
    stream: Any = _MainThreadStream(reserved)
    sys.stdout = stream


class _MainThreadStream:
    """A stream that the main thread writes to; for other threads it is standard error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        in_main_thread = threading.current_thread() is threading.main_thread()
        return getattr(self._stream if in_main_thread else sys.stderr, name)


def refusal() -> str | None:
    """Return why output to standard output was dropped; None: none was, or the reader closed the pipe."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.refused if isinstance(raw, _Descriptor) else None


def tell(sentence: str) -> None:
    """Print a sentence as one line on standard error, with hidden characters escaped."""
    print(escape.one_line(sentence), file=sys.stderr, flush=True)


def _make_robust(stream: TextIO | None, original: TextIO | None, number: int, *, shut: bool) -> TextIO:
    if isinstance(getattr(getattr(stream, "buffer", None), "raw", None), _Descriptor):
        assert stream is not None
        return stream
    if stream is not None and stream is not original:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_DEGRADE)
        return stream
    if stream is not None:
        stream.flush()
    return _wrap(_Descriptor(number, shut=shut), stream, at_once=number == ERROR)


def _wrap(raw: _Descriptor, like: TextIO | None, *, at_once: bool = False) -> TextIO:
    """Return a text stream to a descriptor, with the encoding of the stream `like`."""
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


def _replacement(error: UnicodeError) -> tuple[str | bytes, int]:
    """Return a replacement for a character that cannot be encoded, or the byte of a path that is not text."""
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
