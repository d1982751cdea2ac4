"""Answers to `.ci/compare.sh`, which runs `python -m linbench.cli.pull_request WORD ...`.

They are written to a file, since a plugin may print.
"""

import glob
import sys
from collections.abc import Callable
from pathlib import Path

import yaml

from linbench.cli.options import parse_numbers
from linbench.common.errors import UserError
from linbench.common.numbers import parse_number, parse_whole
from linbench.engine.executors.local import MOST_WORKERS
from linbench.engine.pull_request import models_present, plan, recall, share, with_jitter
from linbench.experiments.pattern import split_models
from linbench.experiments.suite import load, narrow
from linbench.results.gate_policy import load as load_policy
from linbench.results.store import Store

MOST_ROUNDS = 1000


def _plan(
    answer: str,
    models: str,
    suite: str,
    seeds: str,
    rounds: str,
    form: str,
    against: str,
    device: str,
    policy: str,
    workers: str,
    time: str,
    gated: str,
    same: str,
) -> None:
    """Write four lines: the rounds, the models of both sides, those trained once, whether to compare."""
    count = parse_whole("--rounds", 1, MOST_ROUNDS)(rounds)
    if workers:
        parse_whole("--workers", 0, MOST_WORKERS)(workers)
    load_policy(Path(policy) if policy else None)
    parse_numbers("--time", time or None)
    trainings = plan(
        split_models(models),
        load(suite),
        seeds=seeds,
        rounds=count,
        form=form or None,
        against=against or None,
        device=device,
        gated=bool(gated),
        same=bool(same),
    )
    parts = " ".join(",".join(map(str, part)) for part in trainings.rounds)
    _write(
        answer, parts, ",".join(trainings.own), ",".join(trainings.shared), "yes" if trainings.beside else ""
    )


def _present(answer: str, models: str) -> None:
    """Write the models that this side has: all in one line, then each as `linbench sweep --only` takes it."""
    names = split_models(models)
    known = models_present(names)
    new = [name for name in names if name not in known]
    if new:
        print(f"compare.sh: not gated, since the base does not have them: {', '.join(new)}.", file=sys.stderr)
    _write(answer, ",".join(known), *map(glob.escape, known))


def _twins(answer: str, suite: str, size: str) -> None:
    """Write the suite of twins, as a file that `linbench sweep` takes."""
    twins = with_jitter(load(suite), parse_number("--jitter", 1e-12, 0.1)(size))
    _write(answer, yaml.safe_dump(twins.model_dump(mode="json", exclude_unset=True), sort_keys=False))


def _recall(
    answer: str, cache: str, base: str, models: str, seeds: str, form: str, device: str, *suites: str
) -> None:
    """Copy what the cache has of this side to its results, and write for each suite how many that were."""
    counts = []
    for suite in suites:
        asked = narrow(load(suite), models=split_models(models), seeds=seeds, form=form or None)
        counts.append(str(recall(Store(cache), Store(base), asked, device=device)))
    _write(answer, *counts)


def _keep(base: str, cache: str) -> None:
    """Copy one side's results to the cache."""
    share(Store(base), Store(cache))


def _share(head: str, base: str, models: str) -> None:
    """Copy the results of models that were trained once to the other side."""
    share(Store(head), Store(base), split_models(models))


def _write(answer: str, *lines: str) -> None:
    Path(answer).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


_ANSWERS: dict[str, Callable[..., None]] = {
    "plan": _plan,
    "present": _present,
    "twins": _twins,
    "recall": _recall,
    "keep": _keep,
    "share": _share,
}


def main() -> None:
    """Answer the question that the command line asks; on a user's error print it and exit with its code."""
    word, *rest = sys.argv[1:]
    try:
        _ANSWERS[word](*rest)
    except UserError as error:
        print(f"compare.sh: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
