import pytest
import torch

from linbench.tasks.blocks.similar_vectors import similar_vectors
from linbench.verify.similarity import similarity
from linbench.verify.update_rules import DeltaRule, LeastSquares, Rule, Sum, Trials, frequency, nearest

RULES: tuple[Rule, ...] = (Sum(), DeltaRule(), DeltaRule(beta=0.5), LeastSquares())

RECALL: dict[tuple[int, float], tuple[float, ...]] = {
    (4, 0.0): (1, 1, 1, 1),
    (4, 0.3): (1, 1, 1, 1),
    (4, 0.6): (0.99, 0.49, 0.85, 1),
    (4, 0.9): (0.43, 0.25, 0.25, 1),
    (16, 0.6): (0.39, 0.12, 0.27, 1),
}
"""Found once with another program: recall of `RULES` by cluster and cosine, 64 dimensions."""

CROWDED: dict[float, tuple[float, ...]] = {
    0.0: (0.98, 0.52, 1),
    0.3: (0.95, 0.48, 1),
    0.6: (0.76, 0.33, 1),
    0.9: (0.35, 0.24, 0.99),
}
"""The same of a sum, the delta rule and least squares: 64 keys in clusters of 4, 32 dimensions."""


@pytest.mark.parametrize(("cluster", "cosine"), RECALL)
def test_keys_that_are_alike_are_recalled_as_expected(cluster: int, cosine: float) -> None:
    rows = similarity(RULES, cosines=[cosine], clusters=[cluster], trials=Trials(200))
    assert [row["rule"] for row in rows] == [str(rule) for rule in RULES]
    assert [row["accuracy"] for row in rows] == pytest.approx(RECALL[cluster, cosine], abs=0.02)
    if cluster == 4:
        assert all(row["accuracy"] + row["near"] > 0.999 for row in rows)


@pytest.mark.parametrize("cosine", CROWDED)
def test_more_keys_than_dimensions_are_recalled_as_expected(cosine: float) -> None:
    """Values have 64 dimensions here, twice as many as keys."""
    trials = Trials(200, dim=32)
    k, _ = similar_vectors(trials.stream("keys"), 64, 32, cosine=cosine, cluster=4)
    v = Trials(200, dim=64).directions("values", 64)
    recalled = [nearest(rule(k, v, k), v) for rule in (Sum(), DeltaRule(), LeastSquares())]
    found = [frequency(one == torch.arange(64)) for one in recalled]
    assert found == pytest.approx(CROWDED[cosine], abs=0.02)


def test_rows_have_plain_names() -> None:
    (row,) = similarity([Sum()], cosines=[0.6], clusters=[2], pairs=4, trials=Trials(2, dim=4))
    assert {name: type(value) for name, value in row.items()} == {
        "rule": str,
        "dim": int,
        "pairs": int,
        "cluster": int,
        "similarity": float,
        "accuracy": float,
        "near": float,
    }
