"""The same in Python as on the command line: `linbench.run` and `linbench.load`."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from linbench.common.parsing import parse_seeds
from linbench.engine.executors.pool import SILENCE
from linbench.engine.progress import Silent
from linbench.engine.run import carry_out
from linbench.experiments.learning_rates import default_search, refuse_rate
from linbench.experiments.plan import plan
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
    device: str = "auto",
    devices: int | str | None = None,
    workers: int | None = None,
    executor: str = "local",
    address: str | None = None,
    gpus: float | None = None,
    timeout: float = SILENCE,
    again: bool = False,
    allow: Iterable[str] = (),
) -> pd.DataFrame:
    """Train and judge models on a task; what is finished already is read from `results`, a folder.

    What linbench ships trains in this process, whose settings of torch and generators are set for that and
    given back; a task or layer of your own in a process of its own, unless `workers` is 0.

    Args:
        task: a name from `linbench list tasks`, `./file.py:Class` or `package.module:Class`.
        model: one or several names, layer patterns, paths or modules.
        preset, form, protocol, seeds, settings, search, device: as `--preset`, `--form`, `--protocol`,
            `--seeds`, `--set` (dotted names), `--search` and `--device`.
        test_lengths: as `--test-lengths`, such as (1, 2, 4).
        devices, workers, executor, address, gpus, timeout: as `--devices`, `--workers`, `--executor`,
            `--address`, `--gpus` and `--timeout`.
        again: repeat cells that are finished.
        allow: laws that layers of your own may break, as `--allow`, such as ("non-causal",); their results
            are marked and take part in no verdict.

    Returns: one row per cell, as `load`.

    Raises UserError: a name or value that is not allowed, or a layer that breaks a law; StorageError: results
    cannot be kept.
    """
    if search:
        refuse_rate(settings or {})
    models = [model] if isinstance(model, str) else list(model)
    numbers = parse_seeds(seeds)
    cells = plan(
        task,
        models,
        preset=preset,
        form=form,
        protocol=protocol,
        seeds=numbers,
        settings=settings,
        test_lengths=test_lengths,
        device=device,
    )
    where = {
        "name": executor,
        "device": device,
        "workers": workers,
        "address": address,
        "gpus": gpus,
        "silence": timeout,
    }
    where |= {"devices": None if devices is None else str(devices)}
    rates = default_search() if search else None
    return frame(
        carry_out(
            cells, store_at(results), Silent(), search=rates, here=True, where=where, again=again, allow=allow
        )
    )


def load(results: str | Path = "results") -> pd.DataFrame:
    """Every stored result of a folder, or for `reference` those that come with linbench: one row per cell,
    with its settings as `task.NAME`, `protocol.NAME` and `model.NAME` (those of mixers where all layers are
    alike). Of each file that does not count there is a warning.

    Raises StorageError: there is no such folder.
    """
    store = store_at(results)
    found = store.all()
    for path, why in store.set_aside.items():
        warnings.warn(f"a result does not count: {path}: {why}", stacklevel=2)
    return frame(found)
