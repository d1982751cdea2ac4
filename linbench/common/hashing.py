"""Canonical JSON, its SHA-256, and keys for random states."""

import hashlib
import json
from typing import Any


def stable_key(*parts: object) -> int:
    """Return a 63-bit integer that depends on `parts` alone, on every machine and in every process."""
    text = "\x1f".join(repr(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def canonical(value: Any) -> str:
    """Return JSON with sorted keys and no spaces, so that equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()
