"""The Python interface, equal to the command line: `linbench.run` and `linbench.load`."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import pandas as pd

from linbench.common.errors import unknown
from linbench.common.parsing import parse_seeds
from linbench.engine.executors import DEFAULT_EXECUTOR, choose_executor, option_owners
from linbench.engine.progress import NoProgress
from linbench.engine.run import carry_out
from linbench.experiments.learning_rates import default_search, refuse_rate
from linbench.experiments.plan import plan
from linbench.experiments.run_spec import RunSpec
from linbench.results.frame import frame
from linbench.results.reference import store_at


def run(
    task: str,
    model: str | Sequence[str],
    *,
    preset: str | None = None,
    form: str | None = None,
    protocol: str | None = None,
    seeds: int | Iterable[int] = 0,
    settings: Mapping[str, Any] | None = None,
    results: str | Path = "results",
    test_lengths: Sequence[int] = (),
    search: bool = False,
    device: str = DEFAULT_EXECUTOR.device,
    executor: str = DEFAULT_EXECUTOR.name,
    timeout: float = DEFAULT_EXECUTOR.timeout,
    again: bool = False,
    allow: Iterable[str] = (),
    **options: Any,
) -> pd.DataFrame:
    """Train and evaluate models on a task, and return their results.

    Cells with a stored result are not run again. Tasks and layers that linbench ships are trained in this
    process; its settings of torch and its random generators are restored afterwards. Your own get a worker
    process, unless `workers` is 0.

    Args:
        task: a name from `linbench list tasks`, `./file.py:Class` or `package.module:Class`.
        model: one or several names, layer patterns, paths or modules.
        preset, form, protocol, seeds, search, device: as the options of `linbench run` of these names.
        settings: values by dotted names, as `--set`, such as {"task.kv_pairs": 16}.
        results: the folder in which results are kept and looked up.
        test_lengths: multiples of the training length to test on, as `--test-lengths`, such as (1, 2, 4).
        executor, timeout: where models are trained, and the seconds after which a group that reports nothing
            is ended, as `--executor` and `--timeout`.
        again: whether to run cells again that have a stored result.
        allow: laws that layers of your own may break, as `--allow`, such as ("non-causal",). Their results
            are marked and take part in no verdict.
        options: options of the executor: `devices=2` or `workers=4` for the local one; `address="auto"` or
            `gpus=0.25` for `executor="ray"`.

    Returns: one row per cell, as `load`.

    Raises UserError: a name or value that is not allowed, or a layer that breaks a law; StorageError: results
    cannot be kept.
    """
    _refuse_unknown(options)
    if search:
        refuse_rate(settings or {})
    choice = choose_executor(executor, device=device, timeout=timeout, options=options)
    spec = RunSpec(
        task=task,
        models=[model] if isinstance(model, str) else list(model),
        preset=preset,
        form=form,
        protocol=protocol,
        seeds=parse_seeds(seeds),
        settings=settings or {},
        test_lengths=test_lengths,
        device=device,
    )
    found = carry_out(
        plan(spec),
        store_at(results),
        NoProgress(),
        search=default_search() if search else None,
        executor=choice,
        here=True,
        again=again,
        allow=allow,
    )
    return frame(found)


def _refuse_unknown(options: Iterable[str]) -> None:
    """Raise UserError if a keyword is neither an argument of `run` nor an option of an executor."""
    known = option_owners()
    arguments = [name for name in signature(run).parameters if name != "options"]
    for name in options:
        if name not in known:
            raise unknown("argument of linbench.run", name, [*arguments, *known])


def load(results: str | Path = "results") -> pd.DataFrame:
    """Return all stored results of a folder; warn of each file that does not count.

    Args:
        results: a folder of results, or "reference" for those that come with linbench.

    Returns: one row per cell, with its settings as `task.NAME`, `protocol.NAME` and `model.NAME`. Settings of
    mixers are given if all layers of the model are alike.

    Raises StorageError: there is no such folder.
    """
    store = store_at(results)
    found = store.all()
    for path, why in store.set_aside.items():
        warnings.warn(f"ignored result file {path}: {why}", stacklevel=2)
    return frame(found)
