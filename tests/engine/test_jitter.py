"""Twins: trainings of one seed whose first weights differ by a trifle."""

import torch
from torch import Tensor

from linbench.engine.measure import training_context
from linbench.experiments.cell import Cell
from linbench.experiments.plan import plan
from linbench.experiments.run_spec import RunSpec

SIZE = 1e-3


def cells(*, jitter: float | None = None, seeds: tuple[int, ...] = (3,)) -> list[Cell]:
    settings = {} if jitter is None else {"protocol.jitter": jitter}
    return plan(RunSpec("mqar", ["deltanet"], preset="quick", seeds=seeds, settings=settings, device="cpu"))


def first_weights(group: list[Cell]) -> dict[str, Tensor]:
    with training_context(group) as training:
        return {name: x.detach().clone() for name, x in training.stack.parameters.items()}


def test_first_weights_change_by_as_much_as_is_asked() -> None:
    before, after = first_weights(cells()), first_weights(cells(jitter=SIZE))
    for name, weights in before.items():
        kept = weights.count_nonzero()
        assert torch.equal(after[name] != 0, weights != 0), name
        change = torch.where(weights == 0, 0.0, after[name] / weights - 1).norm() / max(kept, 1) ** 0.5
        assert not kept or 0.5 * SIZE < change < 2 * SIZE, name


def test_it_is_drawn_from_the_seed_for_each_replica() -> None:
    both = first_weights(cells(jitter=SIZE, seeds=(3, 4)))
    (name,) = (name for name in both if name.endswith("embedding.weight"))
    for place, seed in enumerate((3, 4)):
        alone = first_weights(cells(jitter=SIZE, seeds=(seed,)))
        assert torch.equal(both[name][place], alone[name][0])


def test_a_run_without_it_is_what_it_was_before_there_was_any() -> None:
    (plain,), (none,), (some,) = cells(), cells(jitter=0.0), cells(jitter=SIZE)
    assert plain.id == none.id != some.id
    assert "jitter" not in plain.identity["protocol"]["settings"]
