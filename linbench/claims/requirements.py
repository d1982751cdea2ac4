"""The models, tasks and other things that a claim needs and linbench does not have."""

from collections.abc import Iterator

from linbench.claims.claim import Claim
from linbench.common.errors import UserError
from linbench.common.settings import Settings
from linbench.experiments.registry import Kind, registry
from linbench.experiments.system import parse_layers


def missing_requirements(claim: Claim) -> list[str]:
    """Return in words what a claim needs and is not installed.

    Models and tasks are looked up, so that a claim is ready as soon as they are installed.
    """
    needs = claim.text.needs
    models = [*needs.models, *(measure.model for measure in claim.deciding if measure.model)]
    tasks = [*needs.tasks, *(task for measure in claim.deciding for task in measure.source.tasks)]
    missing = [word for model in models for word in missing_in_model(model)]
    missing += [f"task {task}" for task in tasks if not _installed("task", task)]
    return [*dict.fromkeys(missing), *needs.other]


def missing_in_model(pattern: str) -> Iterator[str]:
    """Yield in words the models of a layer pattern that are not installed, and settings that they lack."""
    for term in parse_layers(pattern):
        if not _installed("model", term.name):
            yield f"model {term.name}"
            continue
        settings = registry("model").find(term.name).cls.Settings
        if _accepts(settings, dict(term.settings)):  # all at once: one setting may need another
            continue
        refused = [
            f"{name}={value}" for name, value in term.settings if not _accepts(settings, {name: value})
        ]
        together = " and ".join(f"{name}={value}" for name, value in term.settings)
        for words in refused or [together]:
            yield f"model {term.name} with {words}"


def _accepts(settings: type[Settings], given: dict[str, str]) -> bool:
    try:
        settings.parse(given, where="model")
    except UserError:
        return False
    return True


def _installed(kind: Kind, name: str) -> bool:
    return name in registry(kind).entries
