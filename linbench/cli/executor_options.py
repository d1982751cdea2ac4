"""Options that say where cells are trained: `--executor`, `--timeout`, and those that executors declare."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Annotated, Any

import typer

from linbench.cli.options import LONGEST_SECONDS
from linbench.common.numbers import parse_number
from linbench.engine.executors import DEFAULT_EXECUTOR, choose_executor, find_executors
from linbench.engine.executors.base import Option


def with_executor_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Return a verb with the options of all executors in place of its parameter `executor`.

    The verb must have a parameter `device`, as `--device`. As `executor` it gets an `ExecutorChoice`, whose
    options were checked before the verb begins.
    """
    signature = inspect.signature(verb)
    declared = _declared_options()

    @wraps(verb)
    def with_choice(**values: Any) -> Any:
        options = {name: values.pop(name) for name in declared}
        choice = choose_executor(
            values["executor"], device=values["device"], timeout=values.pop("timeout"), options=options
        )
        return verb(**{**values, "executor": choice})

    parameters = list(signature.parameters.values())
    place = list(signature.parameters).index("executor")
    parameters[place : place + 1] = _parameters(declared)
    with_choice.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_choice.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_choice


def _declared_options() -> dict[str, list[tuple[str, Option]]]:
    """Return the options of executors by name, each with the executors that have it."""
    declared: dict[str, list[tuple[str, Option]]] = {}
    for name, executor in find_executors().items():
        for option in executor.options:
            declared.setdefault(option.name, []).append((name, option))
    return declared


def _parameters(declared: dict[str, list[tuple[str, Option]]]) -> Iterable[inspect.Parameter]:
    executors = find_executors()
    helps = [f"{name}: {executor.help}." for name, executor in executors.items()]
    executor_option = typer.Option("--executor", metavar="|".join(executors), help=" ".join(helps))
    yield _parameter("executor", Annotated[str, executor_option], DEFAULT_EXECUTOR.name)
    for name, owners in declared.items():
        option = typer.Option(f"--{name}", metavar=owners[0][1].metavar, help=_help(owners))
        yield _parameter(name, Annotated[str | None, option], None)
    timeout = typer.Option(
        "--timeout",
        parser=parse_number("--timeout", 1, LONGEST_SECONDS),
        metavar="SECONDS",
        help="End a group of cells that has reported nothing for this many seconds.",
    )
    yield _parameter("timeout", Annotated[float, timeout], DEFAULT_EXECUTOR.timeout)


def _help(owners: list[tuple[str, Option]]) -> str:
    """Return the help of an option, with the executor that it needs if that is not the default one."""
    helps = [
        option.help if name == DEFAULT_EXECUTOR.name else f"{option.help} Needs --executor {name}."
        for name, option in owners
    ]
    return " ".join(helps)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation
    )
