"""Help texts as the terminal shows them: a docstring's lines end where the source does, a help text's where
the terminal does."""

import inspect
import re
from collections.abc import Callable
from typing import Any


def help_of(verb: Callable[..., Any]) -> str:
    """Return a verb's docstring with each paragraph on one line, which the terminal wraps; commands of
    examples stay indented."""
    parts = re.split(r"\n\s*\n", inspect.getdoc(verb) or "")
    return "\n\n".join(
        ("  " if part.lstrip().startswith("linbench ") else "") + " ".join(part.split()) for part in parts
    )
