from itertools import product

import pytest
import torch

from linbench.tasks.blocks.groups import Group, group, prefix_products

NAMES = {
    "S3": 6,
    "S4": 24,
    "S5": 120,
    "A4": 12,
    "A5": 60,
    "Z2": 2,
    "Z60": 60,
    "D3": 6,
    "D5": 10,
    "A4xZ5": 60,
    "Z2xZ3xZ2": 12,
}


def times(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a[image] for image in b)


def table(found: Group) -> torch.Tensor:
    return torch.tensor(found.table).view(found.order, found.order)


@pytest.mark.parametrize("name", NAMES)
def test_a_group_is_one(name: str) -> None:
    found = group(name)
    assert found.order == NAMES[name] == len(set(found.elements))
    t, all_of_them = table(found), torch.arange(found.order)
    assert torch.equal(t[0], all_of_them)
    assert torch.equal(t[:, 0], all_of_them)
    assert (t.sort(dim=0).values == all_of_them[:, None]).all()
    assert (t.sort(dim=1).values == all_of_them).all()
    a, b, c = torch.randint(found.order, (3, 500), generator=torch.Generator().manual_seed(0))
    assert torch.equal(t[t[a, b], c], t[a, t[b, c]])
    for x, y in ((1, found.order - 1), (found.order // 2, 1)):
        assert found.elements[int(t[x, y])] == times(found.elements[x], found.elements[y])


def test_groups_are_those_of_their_names() -> None:
    assert set(group("S3").elements) == {(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)}
    assert set(group("A3").elements) == {(0, 1, 2), (1, 2, 0), (2, 0, 1)}
    assert group("Z4").elements == ((0, 1, 2, 3), (1, 2, 3, 0), (2, 3, 0, 1), (3, 0, 1, 2))
    assert set(group("D4").elements) >= {(3, 2, 1, 0), (2, 1, 0, 3)}
    assert set(group("D3").elements) == set(group("S3").elements)
    assert (2, 0, 1, 4, 3) in group("A3xZ2").elements
    assert all(group("Z60").table[a * 60 + b] == (a + b) % 60 for a, b in product(range(60), repeat=2))
    for name, commutes in (("Z60", True), ("Z2xZ3xZ2", True), ("D4", False), ("A4xZ5", False), ("S3", False)):
        assert torch.equal(table(group(name)), table(group(name)).T) is commutes


def test_elements_that_move_few_points() -> None:
    s5 = group("S5")
    swaps = [s5.elements[number] for number in s5.moving(2)]
    assert swaps[0] == (0, 1, 2, 3, 4)
    assert len(swaps) == 11
    assert all(sum(i != image for i, image in enumerate(p)) == 2 for p in swaps[1:])
    assert len(s5.moving(3)) == 31
    assert s5.moving(None) == tuple(range(120))
    assert group("A5").moving(2) == (0,)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 16, 33])
@pytest.mark.parametrize("name", ["S3", "A5", "Z7"])
def test_prefix_products_are_products_one_by_one(name: str, length: int) -> None:
    found = group(name)
    letters = torch.randint(found.order, (5, length), generator=torch.Generator().manual_seed(length))
    products = prefix_products(name, letters)
    for row, expected in zip(letters.tolist(), products.tolist(), strict=True):
        state = found.elements[0]
        for letter, number in zip(row, expected, strict=True):
            state = times(state, found.elements[letter])
            assert found.elements[number] == state


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("Q8", ["'Q8'", "S, A, Z or D"]),
        ("S", ["'S'"]),
        ("S3x", ["'S3x'"]),
        ("S6", ["S6", "120"]),
        ("Z121", ["Z121", "120"]),
        ("S999", ["S999", "120"]),
        ("S4xS4", ["S4xS4", "120"]),
        ("Z1", ["Z1", "too small", "Z2"]),
        ("D2", ["D2", "too small", "D3"]),
    ],
)
def test_names_that_are_none_are_refused(name: str, facts: list[str]) -> None:
    with pytest.raises(ValueError, match=facts[0]) as refused:
        group(name)
    assert all(fact in str(refused.value) for fact in facts), refused.value
