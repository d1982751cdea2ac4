"""The plan of a pull request's gate: what is trained on which side. `.ci/compare.sh` uses it."""

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from linbench.common.errors import EXIT_NOT_COMPARABLE, PluginError, UserError
from linbench.common.parsing import parse_seeds
from linbench.engine.compare import plan_comparison, refuse_left_out
from linbench.experiments.registry import registry
from linbench.experiments.suite import Suite, blocks, expand, narrow
from linbench.experiments.system import parse_layers
from linbench.results.environment import environment
from linbench.results.matching import packages
from linbench.results.store import Store


class BrokenBaseError(UserError):
    """The base has a variant that cannot be imported there, so that nothing can be compared with it."""

    exit_code = EXIT_NOT_COMPARABLE


class Plan(NamedTuple):
    """The trainings of a gate."""

    rounds: list[list[int]]
    """The seeds of each round."""
    own: list[str]
    """Models that may differ between base and head, and are trained on both sides."""
    shared: list[str]
    """Shipped models that are equal on both sides, and are trained once."""
    beside: bool
    """True if there is something to compare side by side."""


def plan(
    models: Sequence[str],
    suite: Suite,
    *,
    seeds: str,
    rounds: int,
    form: str | None = None,
    against: str | None = None,
    device: str = "auto",
    gated: bool,
    same: bool,
) -> Plan:
    """Return the trainings of a gate.

    Args:
        models: the variants.
        suite: the suite that they are trained on.
        seeds: as `--seeds`; they are divided over the rounds.
        rounds: number of rounds.
        form, against, device: as the options of `linbench compare` of these names.
        gated: whether there is a base to gate against.
        same: whether base and head import the very same linbench.

    Raises UserError: as `comparing`, or all models are equal on both sides, so that the gate could not tell
    anything.
    """
    all_seeds = parse_seeds(seeds)
    beside = len(set(models)) > 1 or bool(against) or not gated
    if beside:
        plan_comparison(models, suite, seeds=seeds, form=form, against=against, device=device)
    else:
        chosen_suite = narrow(suite, models=models, seeds=seeds, form=form)
        refuse_left_out(models, *blocks(chosen_suite, device=device))
    shared = [name for name in models if gated and same and _shipped(name, suite)]
    on_both_sides = [name for name in models if name not in shared]
    if gated and not on_both_sides:
        raise UserError(
            f"{', '.join(shared)}: linbench ships all of these, so head and base cannot differ; name a"
            " variant of the repository, or give no --base."
        )
    bounds = [len(all_seeds) * i // rounds for i in range(rounds + 1)]
    parts = [all_seeds[start:end] for start, end in pairwise(bounds)]
    return Plan([part for part in parts if part], on_both_sides, shared, beside)


def _shipped(name: str, suite: Suite) -> bool:
    """Return whether linbench ships all code of a model's cells: its layers and the tasks."""
    layers = [registry("model").find(term.name) for term in parse_layers(name)]
    tasks = [registry("task").find(task.task.partition("/")[0]) for task in suite.tasks]
    return all(entry.shipped for entry in (*layers, *tasks))


def models_present(models: Sequence[str]) -> list[str]:
    """Return the models that this side has. Raises BrokenBaseError: it has one that cannot be imported."""
    known_models = []
    for name in models:
        try:
            for term in parse_layers(name):
                registry("model").find(term.name)
        except PluginError as error:
            raise BrokenBaseError(f"the base cannot be gated against: {error}") from error
        except UserError:
            continue
        known_models.append(name)
    return known_models


def with_jitter(suite: Suite, size: float) -> Suite:
    """Return a suite of twins: the same, with first weights that differ by so much, relatively."""
    return suite.model_copy(update={"set": {**suite.set, "protocol.jitter": size}})


def recall(cache: Store, base: Store, suite: Suite, *, device: str) -> int:
    """Copy to the base's store what a cache has of a suite, and return the number of results.

    A result counts if the code of this side would make it, by its id, with the packages that are here.

    Raises UserError: as `expand`. StorageError: a store cannot be read or written.
    """
    base.prepare()
    found = [(cell, cache.get(cell.id)) for cell in expand(suite, device=device).cells]
    here: dict[str, Any] = {
        each: {"environment": environment(each)} for each in {cell.device for cell, _ in found}
    }
    known = [
        result
        for cell, result in found
        if result and packages(result, cell.device) == packages(here[cell.device], cell.device)
    ]
    for result in known:
        base.put(result)
    return len(known)


def share(source: Store, target: Store, models: Collection[str] | None = None) -> int:
    """Copy the results of some models, or of all, from one store to another, and return their number.

    Raises StorageError: a store cannot be read or written.
    """
    target.prepare()
    results = [result for result in source.all() if models is None or result["label"] in models]
    for result in results:
        target.put(result)
    return len(results)
