"""The gate: which cells of a candidate got worse than a baseline's, and which cannot be compared."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import variance

from linbench.common.errors import EXIT_NOT_COMPARABLE, EXIT_REGRESSION, unknown
from linbench.common.text import pluralize
from linbench.results.gate_policy import Bimodal, Policy
from linbench.results.gate_times import LaterRow, LearningPair, learning_pair
from linbench.results.judgement import GateRow, Noise, SeedPair, Verdict, judge_all, undecided_reason
from linbench.results.matching import Match, accuracies_by_seed, asked_of_twin, jitter_of, matches
from linbench.results.power import spread_of_differences
from linbench.results.schema.benchmarks import SpeedResult
from linbench.results.schema.cells import CellResult
from linbench.results.speed_gate import SpeedRatio, speed_ratios


@dataclass(frozen=True)
class Gate:
    """The outcome of a gate for every row of the baseline."""

    rows: tuple[GateRow, ...]
    problems: tuple[str, ...]
    """A sentence for everything that could not be compared or judged."""
    new: tuple[str, ...]
    """Names of rows that only the candidate has; they are not gated."""
    times: tuple[LaterRow, ...] = ()
    """The tokens to learn of bimodal cells."""
    speeds: tuple[SpeedRatio, ...] = ()
    """The speeds that were timed on both sides."""
    untimed: tuple[str, ...] = ()
    """A sentence for every speed that could not be compared; if speeds are gated these are problems, too."""

    @property
    def red(self) -> list[GateRow]:
        """The rows that got worse."""
        return [one for one in self.rows if one.red]

    @property
    def later(self) -> list[LaterRow]:
        """The bimodal cells whose seeds learn later than before, but for those that are red themselves."""
        known = {one.pair.name for one in self.red}
        return [one for one in self.times if one.red and one.pair.name not in known]

    @property
    def slower(self) -> list[SpeedRatio]:
        """The speeds that take longer than they may."""
        return [one for one in self.speeds if one.red]

    @property
    def exit_code(self) -> int:
        """The exit code of `linbench gate`; a regression outweighs problems."""
        if self.red or self.later or self.slower:
            return EXIT_REGRESSION
        return EXIT_NOT_COMPARABLE if self.problems else 0


def gate(
    baseline: Iterable[CellResult],
    candidate: Iterable[CellResult] | None,
    policy: Policy,
    *,
    speeds: tuple[Sequence[SpeedResult], Sequence[SpeedResult]] = ((), ()),
    unreadable: Sequence[str] = (),
) -> Gate:
    """Compare a candidate's results with a baseline's, by the rules of a policy.

    Rows are matched by task, settings, model, form, protocol and seed. The code may differ, since that is
    what is gated, and with it a size that linbench chose for a number of parameters or of recurrent floats;
    but the version of a task and all else that matters of the environment must agree. Results of twins,
    trained with `protocol.jitter`, are not gated: those of the baseline tell its noise.

    Args:
        baseline: results of cells.
        candidate: results of cells; None: see what the baseline could show of a candidate.
        policy: the rules.
        speeds: stored speeds of both sides. They are shown, and gated if the policy says so.
        unreadable: names of unreadable files of the baseline, which may belong to any cell.

    Raises UserError: the policy names a bimodal cell that the baseline does not have.
    """
    reported = [result for result in baseline if result["purpose"] == "report"]
    before = [result for result in reported if not jitter_of(result)]
    after = (
        before
        if candidate is None
        else [result for result in candidate if result["purpose"] == "report" and not jitter_of(result)]
    )
    twins = _twins(result for result in reported if jitter_of(result))
    _refuse_unknown(policy.bimodal, before)
    found = matches(before, after)
    gated, problems = _comparable([match for match in found if match.baseline.results], policy)
    timed, untimed = speed_ratios(*speeds, policy)
    if policy.slower is not None:
        problems += untimed + _speed_problems(timed, measured=bool(speeds[0]))
    if not before and not (timed and policy.slower is not None):
        problems.append(
            "The baseline holds no result that was run to be reported, so there is nothing to gate."
        )
    problems += [f"{name} of the baseline is unreadable, whatever cell it was of." for name in unreadable]
    pairs = [_pair(match, policy, twins) for match in gated]
    if candidate is None:
        pairs = [pair if pair.known else pair._replace(known=_worst_case(pair)) for pair in pairs]
    times = _learning_pairs(gated, policy)
    judged, later = judge_all(pairs, times, policy)
    among = pluralize(len(judged), "cell")
    among += f" and {pluralize(len(later), 'log-rank test')}" if later else ""
    problems += [why for one in judged if (why := undecided_reason(one, policy, among=among))]
    speeds_gated = any(one.allowed is not None and not one.marks for one in timed)
    if judged and not speeds_gated and all(one.verdict is Verdict.uninformative for one in judged):
        names = "; ".join(one.pair.name for one in judged)
        problems.append(
            f"Both sides are at chance in all that is gated, where nothing can get worse: {names}; gate a"
            " task that the baseline learns."
        )
    marked = [replace(one, marks=_marks(match)) for one, match in zip(judged, gated, strict=True)]
    new = [match.name for match in found if not match.baseline.results]
    return Gate(tuple(marked), tuple(problems), tuple(new), tuple(later), tuple(timed), tuple(untimed))


def _comparable(found: Sequence[Match], policy: Policy) -> tuple[list[Match], list[str]]:
    """Return the rows of the baseline that can be gated, and a sentence for each that cannot."""
    gated, problems, changed = list[Match](), list[str](), dict[str, list[str]]()
    for match in found:
        if match.law_obstacle:
            problems.append(match.law_obstacle)
            continue
        missing = list(match.missing)
        differ = match.differences(policy.may_differ)
        for difference in differ:
            changed.setdefault(difference, []).append(match.name)
        if match.candidate.results and len(match.seeds) < policy.seeds:
            missing[-1:] = [_too_few_seeds(match, policy, missing)]
        elif not differ and match.seeds:
            gated.append(match)
        problems += missing
    for difference, names in changed.items():
        sentence = f"{difference[0].upper()}{difference[1:]}"
        problems.append(f"{sentence}: {'; '.join(names)} cannot be compared.")
    return gated, problems


def _too_few_seeds(match: Match, policy: Policy, missing: Sequence[str]) -> str:
    """Return a sentence that a row has too few seeds; it continues the last one of what is missing."""
    left = f"{pluralize(len(match.seeds), 'seed')} with a number on both sides"
    asks = f"the policy asks for {policy.seeds}"
    if missing:
        return f"{missing[-1].removesuffix('.')} (left: {left}; {asks})."
    return f"{match.name} has {left}, and {asks}."


def _speed_problems(timed: Sequence[SpeedRatio], *, measured: bool) -> list[str]:
    """Return why gated speeds cannot be judged. measured: whether the baseline has any speeds."""
    problems = []
    if not measured:
        problems.append(
            "The policy gates speeds, and the baseline holds none; `linbench bench` measures them."
        )
    marked = [f"{one.name} ({', '.join(one.marks)})" for one in timed if one.marks]
    if marked:
        problems.append(
            f"{pluralize(len(marked), 'speed')} cannot be judged, as others were at work meanwhile or a"
            f" clock was held back: {'; '.join(marked)}."
        )
    return problems


def _twins(results: Iterable[CellResult]) -> dict[str, list[CellResult]]:
    """Return results with jitter by the question that their twins without it answer, whatever the seed."""
    found: dict[str, list[CellResult]] = {}
    for result in results:
        found.setdefault(asked_of_twin(result), []).append(result)
    return found


def _pair(match: Match, policy: Policy, twins: Mapping[str, Sequence[CellResult]]) -> SeedPair:
    chance = max(result["chance"] for _, row in match.sides for result in row.results)
    baseline, one = match.accuracies(match.baseline), _bimodal(match, policy)
    twin = accuracies_by_seed(twins.get(asked_of_twin(match.measured[0][0]), []))
    noise = [(before, twin[seed]) for seed, before in zip(match.seeds, baseline, strict=True) if seed in twin]
    return SeedPair(
        match.name,
        baseline,
        match.accuracies(match.candidate),
        one.learnt if one else None,
        match.diverged,
        chance,
        Noise(spread_of_differences(*zip(*noise, strict=True)), "twins") if len(noise) > 1 else None,
    )


def _learning_pairs(gated: Iterable[Match], policy: Policy) -> list[LearningPair]:
    """Return the tokens to learn of the cells for which the policy asks for them."""
    asked = [(match, one) for match in gated if (one := _bimodal(match, policy)) and one.later]
    found = (learning_pair(match, one.learnt) for match, one in asked)
    return [pair for pair in found if pair is not None]


def _worst_case(pair: SeedPair) -> Noise:
    """Return the noise of runs that spread as the baseline's do and have nothing in common with them."""
    return Noise(2 * variance(pair.baseline), "worst case")


def _bimodal(match: Match, policy: Policy) -> Bimodal | None:
    """Return what the policy says of a bimodal cell; None for other cells."""
    names = _names(match.baseline.results[0])
    return next((one for one in policy.bimodal if (one.task, one.model) in names), None)


def _names(result: CellResult) -> list[tuple[str, str]]:
    """Return the pairs of task and model by which a policy may name a cell."""
    task, preset, model = result["cell"]["task"]["name"], result["preset"], result["label"]
    return [(task, model), (f"{task}/{preset}", model)] if preset else [(task, model)]


def _refuse_unknown(bimodal: Sequence[Bimodal], results: Sequence[CellResult]) -> None:
    """Refuse bimodal cells that no result is of. Raises UserError."""
    known = {" ".join(name) for result in results for name in _names(result)}
    for one in bimodal:
        name = f"{one.task} {one.model}"
        if name not in known:
            raise unknown("bimodal cell of the policy", name, known)


def _marks(match: Match) -> tuple[str, ...]:
    return tuple(f"{side}: {', '.join(row.marks)}" for side, row in match.sides if row.marks)
