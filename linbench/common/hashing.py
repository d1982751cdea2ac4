"""Canonical JSON, its SHA-256, and keys of random states."""

import hashlib
import json
from typing import Any


def stable_key(*parts: object) -> int:
    """A 63-bit integer that depends on `parts` alone: the same on every machine, in every process."""
    text = "\x1f".join(repr(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values, equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    """SHA-256 of the canonical form."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()
