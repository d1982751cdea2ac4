"""Stored answers of language models, grouped by what they were asked."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from linbench.common.files import file_name
from linbench.common.hashing import canonical, digest
from linbench.common.text import pluralize
from linbench.experiments.labels import distinguishing_labels
from linbench.results.schema.pretrained import PretrainedIdentity, PretrainedResult

ANSWERS = {
    "hidden": "The asked example is the sequence that linbench trains on.",
    "written": "The asked example holds its earlier answers, each right after the token where it is due.",
}
"""Explanations of the ways to ask."""

COMMON = ("version", "task", "shots", "answers", "seed", "examples")
"""The fields of an identity that all results of one question have in common."""

DIGITS = 8
"""Hexadecimal digits of a hash that tell apart what has one name."""


class AskedGroup(NamedTuple):
    """Results of language models that were asked the same.

    Attributes:
        question: the task and the way to ask it.
        about: the settings of the task, the number of examples, and the way to ask in a sentence.
        slug: a name for files.
        results: one for each model, in the order of their names.
    """

    question: str
    about: str
    slug: str
    results: tuple[PretrainedResult, ...]

    @property
    def title(self) -> str:
        """The title of tables and figures."""
        return f"Language models on {self.question}"

    @property
    def names(self) -> list[str]:
        """The names of the models; models of one name have beside it what tells them apart."""
        names = [result["label"] for result in self.results]
        for label in {name for name in names if names.count(name) > 1}:
            places = [place for place, name in enumerate(names) if name == label]
            words = distinguishing_labels([_way(self.results[place]) for place in places])
            for place, word in zip(places, words, strict=True):
                names[place] = f"{label} ({word})" if word else label
        return names

    @property
    def slices(self) -> dict[str, dict[str, dict[str, Any]]]:
        """The slices that have an accuracy: by their names, those of each model by the id of its result."""
        found: dict[str, dict[str, dict[str, Any]]] = {}
        for result in self.results:
            for name, part in result["slices"].items():
                if part.get("at") and "accuracy" in part:
                    found.setdefault(name, {})[result["id"]] = dict(part)
        return found


def asked_groups(results: Iterable[PretrainedResult]) -> list[AskedGroup]:
    """Return the results of each question."""
    groups: dict[str, list[PretrainedResult]] = {}
    for result in results:
        groups.setdefault(_asked_alike(result["probe"]), []).append(result)
    return [_group(common, sorted(groups[common], key=_order)) for common in sorted(groups)]


def model_of(result: PretrainedResult) -> tuple[str, ...]:
    """Return what a language model is in whatever it is asked: its name, and how it was run."""
    return result["label"], *_way(result).values()


def _way(result: PretrainedResult) -> dict[str, str]:
    asked = result["probe"]
    return {
        "precision": asked["precision"],
        "device": asked["device"],
        "weights": asked["model"]["digest"][:DIGITS],
    }


def _asked_alike(asked: PretrainedIdentity) -> str:
    """Return what all results of a group have in common."""
    return canonical(
        [asked["task"]["name"], {name: value for name, value in asked.items() if name in COMMON}]
    )


def _order(result: PretrainedResult) -> tuple[str, str, str]:
    return result["label"], result["probe"]["precision"], result["id"]


def _group(common: str, results: list[PretrainedResult]) -> AskedGroup:
    asked = results[0]["probe"]
    settings = ", ".join(f"{name} {value}" for name, value in sorted(asked["task"]["settings"].items()))
    examples = f"{asked['examples']:,} test examples of seed {asked['seed']}"
    # one whose settings were given one by one names no preset, though they are those of one
    preset = next((result["preset"] for result in results if result["preset"]), None)
    name = f"{asked['task']['name']} {preset}" if preset else asked["task"]["name"]
    question = f"{name}, {pluralize(asked['shots'], 'shot')}, answers {asked['answers']}"
    return AskedGroup(
        question,
        f"{settings}; {examples}. {ANSWERS[asked['answers']]}",
        file_name(f"probe {question} {digest(common)[:DIGITS]}"),
        tuple(results),
    )
