"""What a comparison of variants needs: what is stored of it, and what is to be run."""

from collections.abc import Sequence
from dataclasses import dataclass

from linbench.common.errors import UserError
from linbench.engine.former import results_at_chosen_rates, to_run
from linbench.experiments.cell import Cell
from linbench.experiments.learning_rates import SearchSettings
from linbench.experiments.pattern import parse_pattern
from linbench.experiments.registry import registry
from linbench.experiments.suite import Block, Suite, blocks, narrowed
from linbench.results.record import FINAL, Result
from linbench.results.reference import REFERENCE, stores_at
from linbench.results.side_by_side import SideBySide, side_by_side
from linbench.results.speeds import speeds
from linbench.results.store import SPEED, Store


@dataclass(frozen=True)
class Comparing:
    """Variants on a suite: `known` results by the ids of their cells, the `cells` to be run, and for every
    name that is left out, why. stores: those that were read."""

    blocks: list[Block]
    known: dict[str, Result]
    cells: list[Cell]
    left_out: dict[str, str]
    stores: list[Store]

    def tables(self, results: Sequence[Result], store: Store) -> list[SideBySide]:
        """With the results of `cells`, in their order, and what is stored of the speed of layers, in that
        store, too. Raises StorageError."""
        run = {cell.id: result for cell, result in zip(self.cells, results, strict=True)}
        every = {
            result["id"]: result
            for one in (*self.stores, store)
            if one.folder.is_dir()
            for result in one.all(SPEED)
        }
        return side_by_side(self.blocks, self.known | run, speeds(every.values()))


def comparing(
    models: Sequence[str],
    suite: Suite,
    *,
    seeds: str | None = None,
    form: str | None = None,
    against: str | None = None,
    read: Sequence[Store] = (),
    device: str = "auto",
) -> Comparing:
    """These models on the suite's tasks, with its settings and seeds. With `against`, a folder or
    `reference`, all that is stored there is read, and the suite's own models stand beside these, none of
    which is run. `read`: stores that are read without that.

    Raises UserError: nothing to compare with, or a model that this suite cannot have; StorageError: what is
    stored cannot be read.
    """
    named = list(dict.fromkeys(models))
    others = list(dict.fromkeys(part.model for part in suite.models if against and part.model not in named))
    if len(named) < 2 and not others:
        for term in (term for name in named for term in parse_pattern(name)):
            registry("model").find(term.name)
        raise UserError(
            "one variant alone is compared with nothing; name"
            f" another{'' if against else f', or --against {REFERENCE}'}."
        )
    stores = [*(stores_at(against) if against else []), *read]
    chosen = narrowed(suite, models=[*named, *others], seeds=seeds, form=form)
    every, missing = blocks(chosen, device=device)
    # elsewhere there is nothing to compare with
    found = [block for block in every if block.rows[0][0].model == named[0]]
    rows = [(part.model, cells) for block in found for part, cells in block.rows]
    refuse_left_out(named, found, missing)
    known = stored([cell for _, cells in rows for cell in cells], stores, chosen.search)
    if absent := [
        model
        for model in others
        if not any(cell.id in known for name, cells in rows if name == model for cell in cells)
    ]:
        if len(absent) == len(others) and len(named) < 2:
            kind = rows[0][1][0].identity["device"]
            raise UserError(
                f"nothing of the suite is stored in {against} as this linbench would run it on {kind}; run it"
                " without --against."
            )
        missing |= {
            f"model {', '.join(absent)}": f"{against} has no result as this linbench would run it here."
        }
    wanted = {
        cell.id: cell
        for cell in to_run([cell for name, cells in rows if name in named for cell in cells], known)
    }
    return Comparing(found, known, list(wanted.values()), missing, stores)


def refuse_left_out(models: Sequence[str], found: Sequence[Block], missing: dict[str, str]) -> None:
    """Raise UserError if one of `models` is in no block of those that were `found`; `missing` says why."""
    there = {part.model for block in found for part, _ in block.rows}
    if away := next((name for name in models if name not in there), None):
        raise UserError(f"{away} cannot be compared on this suite: {_why(away, missing)}")


def _why(name: str, missing: dict[str, str]) -> str:
    about = [key for key in missing if key.removeprefix("model ").partition(",")[0] in name] or list(missing)
    native = (
        " With --form native all are compared as they were published."
        if any(key.endswith(", controlled") for key in about)
        else ""
    )
    return " ".join(missing[key] for key in about) + native if about else "it has no task."


def stored(
    cells: Sequence[Cell], stores: Sequence[Store], search: SearchSettings | None
) -> dict[str, Result]:
    """By the ids of `cells` the results that stores hold of exactly these: the same code, the same kind of
    device; with a `search`, at the learning rate that their own results lead to, or where that search has not
    been run, at the one that a former rule found, marked.

    Raises UserError: a seed to be reported is a tuning seed; StorageError: what is there cannot be read.
    """

    def found(cell: Cell) -> Result | None:
        results = (store.get(cell.id) for store in stores)
        return next((result for result in results if result is not None and result["status"] in FINAL), None)

    there = (
        results_at_chosen_rates(cells, found, search)
        if search
        else {cell.id: result for cell in cells if (result := found(cell)) is not None}
    )
    return {name: result | {"purpose": "report"} for name, result in there.items()}
