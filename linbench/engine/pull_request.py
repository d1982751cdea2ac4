"""What a gate of a pull request trains on which side: `.ci/compare.sh` asks."""

from collections.abc import Sequence
from typing import NamedTuple

from linbench.common.errors import EXIT_NOT_COMPARABLE, PluginError, UserError
from linbench.common.parsing import parse_seeds
from linbench.engine.compare import comparing, refuse_left_out
from linbench.experiments.pattern import parse_pattern
from linbench.experiments.registry import SHIPPED, registry
from linbench.experiments.suite import Suite, blocks, narrowed
from linbench.results.store import Store


class BrokenBaseError(UserError):
    """A variant that the base has and that cannot be imported there: nothing can be told of it."""

    exit_code = EXIT_NOT_COMPARABLE


class Plan(NamedTuple):
    """What is trained. rounds: the seeds of each. own: models that may differ between base and head, trained
    on both sides. shared: shipped models that are the same on both, trained once. beside: whether there is
    something to compare side by side."""

    rounds: list[list[int]]
    own: list[str]
    shared: list[str]
    beside: bool


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
    """Return what is trained of `models`. gated: there is a base to gate against; same: base and head import
    the very same linbench.

    Raises UserError: as `comparing`, or the gate could not tell anything as all models are the same on both
    sides.
    """
    chosen = parse_seeds(seeds)
    beside = len(set(models)) > 1 or bool(against) or not gated
    if beside:
        comparing(models, suite, seeds=seeds, form=form, against=against, device=device)
    else:
        refuse_left_out(
            models, *blocks(narrowed(suite, models=models, seeds=seeds, form=form), device=device)
        )
    shared = [name for name in models if gated and same and _shipped(name, suite)]
    own = [name for name in models if name not in shared]
    if gated and not own:
        raise UserError(
            f"{', '.join(shared)}: linbench ships all of these, so head and base cannot differ; name a"
            " variant of the repository, or give no --base."
        )
    parts = [chosen[len(chosen) * i // rounds : len(chosen) * (i + 1) // rounds] for i in range(rounds)]
    return Plan([part for part in parts if part], own, shared, beside)


def _shipped(name: str, suite: Suite) -> bool:
    """Whether all code of a model's cells is linbench's own: its layers' and the tasks'."""
    layers = [registry("model").find(term.name) for term in parse_pattern(name)]
    tasks = [registry("task").find(task.task.partition("/")[0]) for task in suite.tasks]
    return all(entry.source == SHIPPED for entry in (*layers, *tasks))


def present(models: Sequence[str]) -> list[str]:
    """Return those models that this side has. Raises BrokenBaseError: one is there and cannot be imported."""
    found = []
    for name in models:
        try:
            for term in parse_pattern(name):
                registry("model").find(term.name)
        except PluginError as error:
            raise BrokenBaseError(f"the base cannot be gated against: {error}") from error
        except UserError:
            continue
        found.append(name)
    return found


def share(head: Store, base: Store, models: Sequence[str]) -> int:
    """Copy the results of shared models from the head's store to the base's, and return how many there were.
    Raises StorageError."""
    base.prepare()
    found = [result for result in head.all() if result["label"] in models]
    for result in found:
        base.put(result)
    return len(found)
