"""What a claim cannot be decided without, and is not there."""

from collections.abc import Iterator

from linbench.claims.claim import Claim
from linbench.common.errors import UserError
from linbench.common.settings import Settings
from linbench.experiments.pattern import parse_pattern, split_task
from linbench.experiments.registry import Kind, registry


def unmet(claim: Claim) -> list[str]:
    """In words; nothing where all is there. What has a name is looked up, so that a claim that waits for a
    model is ready when it is there."""
    needs = claim.text.needs
    models = [
        *needs.models,
        *(claim.measures[name].model for name in claim.deciding if claim.measures[name].model),
    ]
    tasks = [*needs.tasks, *(task for name in claim.deciding for task in _tasks(claim, name))]
    lacking = [
        *(word for model in models for word in lacking_of_model(model)),
        *(f"task {task}" for task in tasks if not _there("task", task)),
    ]
    return [*dict.fromkeys(lacking), *needs.other]


def _tasks(claim: Claim, name: str) -> list[str]:
    """Of the cells of a measure, by name."""
    grid = claim.grids.get(claim.measures[name].cells)
    return [split_task(task.task)[0] for task in grid.suite.tasks] if grid else []


def lacking_of_model(pattern: str) -> Iterator[str]:
    """Models of a layer pattern that are not there, and settings that they do not have."""
    for term in parse_pattern(pattern):
        if not _there("model", term.name):
            yield f"model {term.name}"
            continue
        settings = registry("model").find(term.name).cls.Settings
        if _takes(settings, dict(term.settings)):  # together: one may need another
            continue
        alone = [f"{name}={value}" for name, value in term.settings if not _takes(settings, {name: value})]
        yield from (
            f"model {term.name} with {setting}"
            for setting in alone or [" and ".join(f"{name}={value}" for name, value in term.settings)]
        )


def _takes(settings: type[Settings], given: dict[str, str]) -> bool:
    try:
        settings.parse(given, where="model")
    except UserError:
        return False
    return True


def _there(kind: Kind, name: str) -> bool:
    return name in registry(kind).entries
