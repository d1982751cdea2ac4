"""The laws that a layer must keep to be trained.

Their names are the words of `--allow` and of marks of results.
"""

from collections.abc import Iterable
from enum import StrEnum

from linbench.common.errors import unknown


class Law(StrEnum):
    """The word for a layer that breaks a law."""

    non_causal = "non-causal"
    batch_mixing = "batch-mixing"
    nondeterministic = "nondeterministic"


def parse_laws(names: Iterable[str]) -> frozenset[Law]:
    """Return the laws of these names, which may be written with `_` as well.

    Raises UserError: a name that is no law.
    """
    known = [law.value for law in Law]
    spelt = [name.replace("_", "-") for name in names]
    for name in spelt:
        if name not in known:
            raise unknown("law for --allow", name, known)
    return frozenset(map(Law, spelt))
