"""Laws that a layer must keep to be trained, by the names that `--allow` and the marks of results have for
those who break them."""

from collections.abc import Iterable
from enum import StrEnum

from linbench.common.errors import unknown


class Law(StrEnum):
    """How a layer is called that breaks one of them."""

    non_causal = "non-causal"
    batch_mixing = "batch-mixing"
    nondeterministic = "nondeterministic"


def allowed(names: Iterable[str]) -> frozenset[Law]:
    """Return the laws of these names. Raises UserError: there is none of that name."""
    known = [law.value for law in Law]
    for name in names:
        if name not in known:
            raise unknown("law that can be allowed to be broken", name, known)
    return frozenset(map(Law, names))
