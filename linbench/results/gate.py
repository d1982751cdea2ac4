"""Candidate results against a baseline: which cells got worse, and which cannot be compared."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from linbench.common.errors import EXIT_NOT_COMPARABLE, EXIT_REGRESSION, unknown
from linbench.common.text import pluralize
from linbench.results.gate_policy import Bimodal, Policy
from linbench.results.judgement import Judged, Pair, Verdict, judge, why_untold
from linbench.results.matching import Match, matches
from linbench.results.schema.benchmarks import SpeedResult
from linbench.results.schema.cells import CellResult
from linbench.results.speed_gate import Pace, paces


@dataclass(frozen=True)
class Gate:
    """What became of every row of the baseline."""

    judged: tuple[Judged, ...]
    problems: tuple[str, ...]
    """What could not be compared, a sentence each."""
    new: tuple[str, ...]
    """Rows that the candidate alone has: they are not gated."""
    speeds: tuple[Pace, ...] = ()
    """Of what was timed on both sides."""
    untimed: tuple[str, ...] = ()
    """Speeds that could not be compared, a sentence each; where they are gated they are among the
    problems."""

    @property
    def red(self) -> list[Judged]:
        """Those that got worse."""
        return [one for one in self.judged if one.red]

    @property
    def slower(self) -> list[Pace]:
        """Those that take longer than they may."""
        return [one for one in self.speeds if one.red]

    @property
    def exit_code(self) -> int:
        """A regression that was shown outweighs what could not be."""
        return EXIT_REGRESSION if self.red or self.slower else EXIT_NOT_COMPARABLE if self.problems else 0


def gate(
    baseline: Iterable[CellResult],
    candidate: Iterable[CellResult],
    policy: Policy,
    *,
    speeds: tuple[Sequence[SpeedResult], Sequence[SpeedResult]] = ((), ()),
    unreadable: Sequence[str] = (),
) -> Gate:
    """Rows are matched by task, settings, model, form, protocol and seed; what code they ran is left aside,
    as that is what is gated. But a task of another version asks another question, and what else matters of
    the environment must agree. speeds: what both sides have stored of them, which is shown, and gated where
    the policy says so. unreadable: files of the baseline that may be of any cell, so that it cannot be told
    what else there was.

    Raises UserError: the policy names a bimodal cell that the baseline does not have.
    """
    reported = [
        [result for result in side if result["purpose"] == "report"] for side in (baseline, candidate)
    ]
    _refuse_unknown(policy.bimodal, reported[0])
    found = matches(*reported)
    gated, problems, changed = list[Match](), list[str](), dict[str, list[str]]()
    for match in (match for match in found if match.baseline.results):
        if match.lawless:
            problems.append(match.lawless)
            continue
        missing = list(match.missing)
        differ, seeds = match.changed(policy.may_differ), len(match.seeds)
        for what in differ:
            changed.setdefault(what, []).append(match.name)
        if match.candidate.results and seeds < policy.seeds:
            left = f"{pluralize(seeds, 'seed')} with a number on both sides"
            asks = f"the policy asks for {policy.seeds}"
            missing[-1:] = [
                (
                    f"{missing[-1].removesuffix('.')} (left: {left}; {asks})."
                    if missing
                    else f"{match.name} has {left}, and {asks}."
                )
            ]
        elif not differ and seeds:
            gated.append(match)
        problems += missing
    problems += [
        f"{what[0].upper()}{what[1:]}: {'; '.join(names)} cannot be compared."
        for what, names in changed.items()
    ]
    timed, untimed = paces(*speeds, policy)
    if policy.slower is not None:
        problems += untimed
        if not speeds[0]:
            problems.append(
                "The policy gates speeds, and the baseline holds none; `linbench bench` measures them."
            )
        if marked := [f"{one.name} ({', '.join(one.marks)})" for one in timed if one.marks]:
            problems.append(
                f"{pluralize(len(marked), 'speed')} cannot be judged, as others were at work meanwhile or a"
                f" clock was held back: {'; '.join(marked)}."
            )
    if not reported[0] and not (timed and policy.slower is not None):
        problems.append(
            "The baseline holds no result that was run to be reported, so there is nothing to gate."
        )
    problems += [f"{name} of the baseline is unreadable, whatever cell it was of." for name in unreadable]
    judged = judge([_pair(match, policy) for match in gated], policy)
    problems += [why for one in judged if (why := why_untold(one, policy, cells=len(judged)))]
    if (
        judged
        and not any(one.allowed is not None and not one.marks for one in timed)
        and all(one.verdict is Verdict.uninformative for one in judged)
    ):
        names = "; ".join(one.pair.name for one in judged)
        problems.append(
            f"Both sides are at chance in all that is gated, where nothing can get worse: {names}; gate a"
            " task that the baseline learns."
        )
    told = tuple(replace(one, marks=_marks(match)) for one, match in zip(judged, gated, strict=True))
    new = tuple(match.name for match in found if not match.baseline.results)
    return Gate(told, tuple(problems), new, tuple(timed), tuple(untimed))


def _pair(match: Match, policy: Policy) -> Pair:
    chance = max(float(result["chance"]) for _, row in match.sides for result in row.results)
    return Pair(
        match.name,
        match.accuracies(match.baseline),
        match.accuracies(match.candidate),
        _learnt(match, policy),
        match.diverged,
        chance,
    )


def _learnt(match: Match, policy: Policy) -> float | None:
    return next(
        (one.learnt for one in policy.bimodal if (one.task, one.model) in _names(match.baseline.results[0])),
        None,
    )


def _names(result: CellResult) -> list[tuple[str, str]]:
    """By which a policy may know it."""
    task, preset = result["cell"]["task"]["name"], result["preset"]
    return [(name, result["label"]) for name in (task, *([f"{task}/{preset}"] if preset else []))]


def _refuse_unknown(bimodal: Sequence[Bimodal], results: Sequence[CellResult]) -> None:
    """Raises UserError."""
    known = {" ".join(name) for result in results for name in _names(result)}
    for one in bimodal:
        if (name := f"{one.task} {one.model}") not in known:
            raise unknown("bimodal cell of the policy", name, known)


def _marks(match: Match) -> tuple[str, ...]:
    return tuple(f"{side}: {', '.join(row.marks)}" for side, row in match.sides if row.marks)
