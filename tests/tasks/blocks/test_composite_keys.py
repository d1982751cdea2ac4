from collections.abc import Callable
from itertools import combinations, permutations
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.common.settings import ABSENT, Settings
from linbench.tasks.blocks.composite_keys import Cluster, CompositeKeys, Parts, Shared
from tests.helpers.tasks import stream

N = 20_000
ALPHA = 1e-3
Probability = Callable[..., float]

LAWS = [
    CompositeKeys(16, parts, shared, 4) for parts, shared in ((2, 0), (2, 1), (4, 0), (4, 1), (4, 2), (4, 3))
] + [CompositeKeys(6, 3, 1, 3), CompositeKeys(6, 3, 2, 2), CompositeKeys(9, 2, 1, 3)]


def drawn(law: CompositeKeys, count: int) -> tuple[Tensor, Tensor]:
    """Keys whose tokens are 100, 101, ... in any order, and the near keys of each."""
    cells = law.cells(stream(count).child("cells"))
    tokens = 100 + stream(count).child("tokens").shuffle(law.tokens)
    return law.spell(cells, tokens), law.near(cells)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_near_keys_share_the_first_parts_and_no_other(law: CompositeKeys) -> None:
    keys, near = drawn(law, 30)
    assert keys.shape == (30, law.keys, law.parts)
    assert near.shape == (30, law.keys, law.cluster - 1)
    for row, its_near in zip(keys.tolist(), near.tolist(), strict=True):
        for a, b in combinations(range(law.keys), 2):
            same = [x == y for x, y in zip(row[a], row[b], strict=True)]
            assert (a in its_near[b]) == (b in its_near[a])
            if a in its_near[b]:
                assert same == [True] * law.shared + [False] * (law.parts - law.shared)
            else:
                assert not any(same[: law.shared])
        assert all(len({key, *its_near[key]}) == law.cluster for key in range(law.keys))


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_every_token_has_one_role_and_own_parts_are_the_same_in_every_cluster(law: CompositeKeys) -> None:
    keys, near = drawn(law, 30)
    for row, its_near in zip(keys.tolist(), near.tolist(), strict=True):
        roles = {(token, place) for key in row for place, token in enumerate(key)}
        assert sorted(token for token, _ in roles) == list(range(100, 100 + law.tokens))
        clusters = {frozenset({key, *its_near[key]}) for key in range(law.keys)}
        own = {frozenset(tuple(row[key][law.shared :]) for key in cluster) for cluster in clusters}
        assert len(clusters) == law.keys // law.cluster
        assert len(own) == (1 if law.shared else len(clusters))


def test_keys_that_share_nothing_have_tokens_of_their_own() -> None:
    law = CompositeKeys(16, 4, 0, 4)
    keys, _ = drawn(law, 20)
    assert all(len(set(row)) == 64 for row in keys.flatten(1).tolist())


def test_keys_stand_in_any_order(chi_squared: Probability) -> None:
    cells = CompositeKeys(4, 2, 1, 2).cells(stream(N))
    codes = (cells * torch.tensor([64, 16, 4, 1])).sum(dim=1).bincount(minlength=256)
    orders = [64 * a + 16 * b + 4 * c + d for a, b, c, d in permutations(range(4))]
    assert chi_squared(codes[orders], torch.full((24,), N / 24)) > ALPHA


def test_a_key_of_one_part_is_the_token_at_its_place() -> None:
    law, tokens = CompositeKeys(7, 1, 0, 4), torch.arange(21).view(3, 7)
    assert law.tokens == 7
    assert torch.equal(law.spell(law.cells(stream(3)), tokens), tokens[:, :, None])


def embedded(law: CompositeKeys) -> Tensor:
    """The keys of one sequence as sums of random embeddings of their parts [V, 256]."""
    keys, _ = drawn(law, 1)
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(100 + law.tokens, 256, generator=generator, dtype=torch.float64)
    return table[keys[0]].sum(dim=1)


@pytest.mark.parametrize("side", [4, 8])
@pytest.mark.parametrize(("parts", "shared"), [(2, 1), (4, 2), (4, 3)])
def test_sums_of_parts_span_as_many_dimensions_as_rows_and_columns_less_one(
    side: int, parts: int, shared: int
) -> None:
    assert (
        int(torch.linalg.matrix_rank(embedded(CompositeKeys(side**2, parts, shared, side)))) == 2 * side - 1
    )
    assert int(torch.linalg.matrix_rank(embedded(CompositeKeys(side**2, parts, 0, side)))) == side**2


def test_sums_of_parts_of_a_grid_that_is_no_square_span_its_rows_and_columns_less_one() -> None:
    assert int(torch.linalg.matrix_rank(embedded(CompositeKeys(16, 2, 1, 8)))) == 2 + 8 - 1


@pytest.mark.parametrize(("keys", "cluster", "share"), [(16, 4, 0.40), (64, 8, 0.22), (16, 8, 0.53)])
def test_share_of_pairs_of_keys_that_have_one_of_two_parts_in_common(
    keys: int, cluster: int, share: float
) -> None:
    row = drawn(CompositeKeys(keys, 2, 1, cluster), 1)[0][0].tolist()
    alike = [x == y or z == w for (x, z), (y, w) in combinations(row, 2)]
    assert sum(alike) / len(alike) == pytest.approx(share, abs=0.005)


class Plain(Settings):
    """Settings with the three fields and no others."""

    parts: Parts = 1
    shared: Shared = 0
    cluster: Cluster = 4


def test_results_from_before_there_were_parts_are_those_of_one_part() -> None:
    assert Plain().identity() == {}
    assert Plain(parts=2, shared=1, cluster=2).identity() == {"parts": 2, "shared": 1, "cluster": 2}
    for name, value in Plain():
        extra: Any = Plain.model_fields[name].json_schema_extra
        assert extra[ABSENT] == value
