"""Help texts made of docstrings, with lines that the terminal wraps."""

import inspect
import re
from collections.abc import Callable
from typing import Any


def help_of(verb: Callable[..., Any]) -> str:
    """Return a verb's docstring with each paragraph on one line, and commands of examples indented."""
    paragraphs = re.split(r"\n\s*\n", inspect.getdoc(verb) or "")
    lines = [" ".join(paragraph.split()) for paragraph in paragraphs]
    return "\n\n".join(f"  {line}" if line.startswith("linbench ") else line for line in lines)
