"""Lines of packs without what follows from the rest of them.

The id of a result is the SHA-256 of its identity, and its checksum that of the result. Digits of a hash do
not compress, and both would take nearly half of a pack of runs that chose learning rates. So a pack has an
empty id where it can be computed, and the first digits of the checksum, which tell an altered line well
enough: of a whole pack `packs.json` has the SHA-256.
"""

import hashlib
import re

from linbench.results.result_text import digest_beside_checksum

KEPT_DIGITS = 4
"""Hexadecimal digits of a checksum that a pack keeps. An altered line passes for sound once in 65,536 times.

Older packs keep eight.
"""

_CHECKSUM = re.compile(rb'"checksum":"([0-9a-f]{64}|[0-9a-f]{8}|[0-9a-f]{4})",')
_ID = re.compile(rb'"id":"(?:[0-9a-f]{64})?"')
_EMPTY_ID = b'"id":""'
_BEFORE_IDENTITY = re.compile(rb'\{"(?:cell|bench)":')
_BEHIND_IDENTITY = re.compile(rb',"c(?:hance|eilings)":')
"""The names of the first field in canonical JSON, which is the identity, and of the field that follows.

One pattern for both would be read a character at a time, and take ten times as long.
"""


def shortened(text: bytes) -> bytes:
    """Return the line of a pack for a result's text; `restored` gives that text again."""
    short = _CHECKSUM.sub(lambda found: b'"checksum":"%s",' % found[1][:KEPT_DIGITS], text, count=1)
    for candidate in (_ID.sub(_EMPTY_ID, short, count=1), short):
        if restored(candidate) == text:
            return candidate
    return text


def restored(line: bytes) -> bytes:
    """Return the text of a result from the line of a pack.

    A line that is not short, such as one of an older pack, or not sound is returned as it is.
    """
    text = _with_id(line)
    found = _CHECKSUM.search(text)
    if found is None or len(found[1]) == hashlib.sha256().digest_size * 2:
        return text
    digest = digest_beside_checksum(text, found).encode()
    if not digest.startswith(found[1]):
        return text
    return text[: found.start(1)] + digest + text[found.end(1) :]


def _with_id(line: bytes) -> bytes:
    """Return a line with its id in place of an empty one, if it has an identity."""
    before = _BEFORE_IDENTITY.match(line) if _EMPTY_ID in line else None
    behind = before and _BEHIND_IDENTITY.search(line, before.end())
    if not before or not behind:
        return line
    digest = hashlib.sha256(line[before.end() : behind.start()]).hexdigest()
    return line.replace(_EMPTY_ID, b'"id":"%s"' % digest.encode(), 1)
