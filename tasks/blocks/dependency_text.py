"""Rows of `brevo` as they are read, and the answers that are right."""

from typing import NamedTuple

from linbench.tasks.blocks.names import Names, read_words

__all__ = [
    "ANSWER",
    "BEGIN",
    "END",
    "NAMES",
    "QUERY",
    "Instance",
    "Name",
    "admissible_answer",
    "is_right",
    "read_instances",
]

BEGIN, QUERY, ANSWER, END, NAMES = 1, 2, 3, 4, 5
"""Tokens, of which NAMES is the first of names."""

Name = tuple[int, ...]


class Instance(NamedTuple):
    """An instance as it was read.

    answer: position of `ANSWER`, if it was reached. said: the words after it, each with the position of its
    first token.
    """

    edges: list[tuple[Name, Name]]
    query: Name
    answer: int | None
    said: list[tuple[int, Name]]


def read_instances(tokens: list[int], names: Names) -> list[Instance]:
    """Read a row of tokens word by word, with the settings of its names."""
    instances: list[Instance] = []
    for at, word in read_words(tokens, names, NAMES):
        if word == (BEGIN,):
            ends: list[Name] = []  # of edges, one after another
            instances.append(Instance([], (), None, []))
        elif instances and instances[-1].answer is not None:
            instances[-1].said.append((at, word))
        elif instances and word == (QUERY,):
            edges = list(zip(ends[::2], ends[1::2], strict=False))
            instances[-1] = instances[-1]._replace(edges=edges)
        elif instances and word == (ANSWER,):
            instances[-1] = instances[-1]._replace(query=ends[-1] if ends else (), answer=at)
        elif instances:
            ends.append(word)
    return instances


def _needed(instance: Instance) -> tuple[set[Name], dict[Name, set[Name]]]:
    """Return the query with all that it depends on, and the parents of each node."""
    parents: dict[Name, set[Name]] = {}
    for parent, child in instance.edges:
        parents.setdefault(child, set()).add(parent)
    needed, open_ = {instance.query}, [instance.query]
    while open_:
        new = parents.get(open_.pop(), set()) - needed
        needed |= new
        open_ += new
    return needed, parents


def is_right(instance: Instance) -> bool:
    """Tell whether an answer is whole and ends after its last node."""
    needed, parents = _needed(instance)
    said: set[Name] = set()
    for _, word in instance.said:
        if word == (END,):
            return said == needed
        if word not in needed - said or not parents.get(word, set()) <= said:
            return False
        said.add(word)
    return False


def admissible_answer(instance: Instance) -> list[tuple[int, int]]:
    """Return positions after `ANSWER` with a token that is admissible after what was said there."""
    if instance.answer is None:
        return []
    needed, parents = _needed(instance)
    said: set[Name] = set()

    def choose(prefix: Name) -> int:
        can = [name for name in needed - said if parents.get(name, set()) <= said]
        fits = [name for name in can if name[: len(prefix)] == prefix and len(name) > len(prefix)]
        return min(fits)[len(prefix)] if fits else END

    found = [(instance.answer, choose(()))]
    for at, word in instance.said:
        found += [(at + place - 1, choose(word[:place])) for place in range(1, len(word))]
        said.add(word)
        found.append((at + len(word) - 1, choose(())))
    return found
