from collections import Counter

import pytest

from linbench.tasks.blocks.stack_tops import most_common_top_share

Stacks = tuple[tuple[int, ...], ...]


def pops(stacks: Stacks, depth: int, elements: int, left: int) -> tuple[float, float]:
    """Return the pops of the likeliest element, and all pops, among the operations that are left.

    They are counted by going through all that can happen.
    """
    if not left:
        return 0.0, 0.0
    likely: Counter[int] = Counter()
    right = due = 0.0
    for i, stack in enumerate(stacks):
        pop = (0.0 if not stack else 1.0 if len(stack) == depth else 0.5) / len(stacks)
        after = [(pop, stack[:-1])] + [
            ((1 / len(stacks) - pop) / elements, (*stack, element)) for element in range(elements)
        ]
        likely.update({stack[-1]: pop} if stack else {})  # type: ignore[dict-item]
        for p, other in after:
            if p:
                more = pops((*stacks[:i], other, *stacks[i + 1 :]), depth, elements, left - 1)
                right, due = right + p * more[0], due + p * more[1]
    return right + max(likely.values(), default=0.0), due + sum(likely.values())


@pytest.mark.parametrize(("stacks", "depth", "elements"), [(2, 1, 2), (2, 2, 2), (3, 3, 2), (2, 2, 3)])
def test_the_likeliest_element_to_be_popped(stacks: int, depth: int, elements: int) -> None:
    right, due = pops(((),) * stacks, depth, elements, 5)
    assert most_common_top_share(stacks, depth=depth, elements=elements, operations=5) == pytest.approx(
        right / due
    )
