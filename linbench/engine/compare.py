"""Comparisons of variants: the results that are stored, and the cells that are to be run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from linbench.common.errors import UserError
from linbench.engine.former import cells_to_run, results_at_chosen_rates
from linbench.engine.ladder import final_result
from linbench.experiments.cell import Cell
from linbench.experiments.equal_parameters import match_parameters
from linbench.experiments.learning_rates import SearchSettings
from linbench.experiments.registry import registry
from linbench.experiments.suite import Suite, SuiteBlock, blocks, narrow
from linbench.experiments.system import parse_layers
from linbench.results.record import FINAL
from linbench.results.reference import REFERENCE, stores_at
from linbench.results.schema.benchmarks import SpeedResult
from linbench.results.schema.cells import CellResult
from linbench.results.side_by_side import VariantComparison, compare_variants
from linbench.results.speeds import speeds
from linbench.results.store import SPEED, Store
from linbench.results.undertrained import judged


@dataclass(frozen=True)
class ComparisonPlan:
    """A comparison of variants on a suite, before its missing cells are run."""

    blocks: list[SuiteBlock]
    known: dict[str, CellResult]
    """Stored results by the ids of their cells."""
    cells: list[Cell]
    """The cells that are to be run."""
    left_out: dict[str, str]
    """The reason for every name that is left out."""
    stores: list[Store]
    """The stores that were read."""

    def tables(self, results: Sequence[CellResult], store: Store) -> list[VariantComparison]:
        """Return the tables of the comparison.

        Args:
            results: the results of `cells`, in their order.
            store: where they are kept; speeds of layers are read from it, too.

        Raises StorageError: stored speeds cannot be read.
        """
        new = {cell.id: result for cell, result in zip(self.cells, results, strict=True)}
        layer_speeds: dict[str, SpeedResult] = {}
        for each_store in (*self.stores, store):
            if each_store.folder.is_dir():
                layer_speeds |= {result["id"]: result for result in each_store.by_kind()[SPEED]}
        known = self.known | new
        by_cell = dict(zip(known, judged(known.values()), strict=True))
        return compare_variants(self.blocks, by_cell, speeds(layer_speeds.values()))


def plan_comparison(
    models: Sequence[str],
    suite: Suite,
    *,
    seeds: str | None = None,
    form: str | None = None,
    protocol: str | None = None,
    budget: int | None = None,
    against: str | None = None,
    read: Sequence[Store] = (),
    device: str = "auto",
) -> ComparisonPlan:
    """Plan a comparison of models on the tasks of a suite, with its settings and seeds.

    Models whose state is undeclared are compared at equal parameters, see `match_parameters`.

    Args:
        models: names or patterns; the others are compared with the first.
        suite: the suite.
        seeds, form, protocol, budget: in place of those of the suite, as `--seeds`, `--form`, `--protocol`
            and `--budget`.
        against: a folder or "reference". Its results are read, and the suite's own models are compared, too,
            as far as they are stored there; none of them is run.
        read: stores that are read as well.
        device: as `--device`.

    Raises UserError: there is nothing to compare with, or the suite cannot have a model; StorageError: stored
    results cannot be read.
    """
    names = list(dict.fromkeys(models))
    suite_models = dict.fromkeys(part.model for part in suite.models)
    others = [model for model in suite_models if model not in names] if against else []
    if len(names) < 2 and not others:
        raise _nothing_to_compare(names, against)
    stores = [*(stores_at(against) if against else []), *read]
    if protocol is not None and budget is not None:
        raise UserError("--protocol and --budget both say how long models are trained; keep one of the two.")
    chosen = narrow(suite, models=[*names, *others], seeds=seeds, form=form, protocol=protocol, tokens=budget)
    all_blocks, missing = blocks(chosen, device=device)
    if budget is not None:
        _refuse_epochs(all_blocks)
    # a block without the first model has nothing to compare with
    compared = match_parameters([block for block in all_blocks if block.rows[0][0].model == names[0]])
    refuse_left_out(names, compared, missing)
    cells_of = _cells_by_model(compared)
    known = stored_results([cell for cells in cells_of.values() for cell in cells], stores, chosen.search)
    absent = [model for model in others if not any(cell.id in known for cell in cells_of.get(model, ()))]
    if absent and len(absent) == len(others) and len(names) < 2:
        kind = compared[0].rows[0][1][0].identity["device"]
        raise UserError(
            f"nothing of the suite is stored in {against} as this linbench would run it on {kind}; name"
            " a folder that has some with --against."
        )
    if absent:
        reason = f"{against} has no result as this linbench would run it here."
        missing = {**missing, f"model {', '.join(absent)}": reason}
    own_cells: list[Cell] = []
    for block in compared:
        for part, cells in block.rows:
            if part.model in names:
                own_cells += cells
    to_run = {cell.id: cell for cell in cells_to_run(own_cells, known)}
    return ComparisonPlan(compared, known, list(to_run.values()), missing, stores)


def _refuse_epochs(suite_blocks: Sequence[SuiteBlock]) -> None:
    """Raise UserError if a cell is trained for a number of epochs, which a budget does not change."""
    if any(cell.protocol.epochs for block in suite_blocks for _, cells in block.rows for cell in cells):
        raise UserError(
            "--budget gives a number of tokens, but this suite is trained for a number of epochs; change"
            " protocol.epochs in the suite."
        )


def _nothing_to_compare(models: Sequence[str], against: str | None) -> UserError:
    """Return the error for a single variant; raise that of a model that does not exist."""
    for name in models:
        for term in parse_layers(name):
            registry("model").find(term.name)
    hint = "" if against else f", or --against {REFERENCE}"
    return UserError(f"one variant alone is compared with nothing; name another{hint}.")


def _cells_by_model(suite_blocks: Sequence[SuiteBlock]) -> dict[str, list[Cell]]:
    by_model: dict[str, list[Cell]] = {}
    for block in suite_blocks:
        for part, cells in block.rows:
            by_model.setdefault(part.model, []).extend(cells)
    return by_model


def refuse_left_out(
    models: Sequence[str], suite_blocks: Sequence[SuiteBlock], missing: Mapping[str, str]
) -> None:
    """Refuse a comparison that one of the models has no part in.

    Args:
        models: the models that were named.
        suite_blocks: the blocks of the suite.
        missing: reasons why models are in no block, by words that name them.

    Raises UserError: a model is in no block.
    """
    present = {part.model for block in suite_blocks for part, _ in block.rows}
    for name in models:
        if name not in present:
            raise UserError(f"{name} cannot be compared on this suite: {_reason(name, missing)}")


def _reason(name: str, missing: Mapping[str, str]) -> str:
    keys = [key for key in missing if key.removeprefix("model ").partition(",")[0] in name] or list(missing)
    if not keys:
        return "it has no task."
    reasons = [missing[key] for key in keys]
    if any(key.endswith(", controlled") for key in keys):
        reasons.append("In the native form (--form native) all are compared as they were published.")
    return " ".join(reasons)


def stored_results(
    cells: Sequence[Cell], stores: Sequence[Store], search: SearchSettings | None
) -> dict[str, CellResult]:
    """Return the stored results of exactly these cells, by id: of the same code and kind of device.

    With a `search` they are those at the learning rate that the stored results of the search lead to. If it
    has not been run, they are those at a rate that a former rule chose, marked.

    Raises UserError: a seed to be reported is a tuning seed; StorageError: stored results cannot be read.
    """

    def look_up(cell: Cell) -> CellResult | None:
        results = (store.get(cell.id) for store in stores)
        return next((result for result in results if result is not None and result["status"] in FINAL), None)

    if search:
        present = results_at_chosen_rates(cells, look_up, search)
    else:
        results_of = {cell.id: final_result(cell, look_up) for cell in cells}
        present = {name: result for name, result in results_of.items() if result is not None}
    return {name: result | {"purpose": "report"} for name, result in present.items()}
