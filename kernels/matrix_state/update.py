"""Updates: the write of a token into the state, and what of the state it reads to do so."""

from typing import Literal, NamedTuple

from torch import Tensor

Reads = Literal["decayed", "undecayed"]


Operands = tuple[Tensor | None, Tensor | None, Tensor | None]
"""Tensors of an update: beta, the key that reads the state, and the key that is written under.

None stands for 1 and for k.
"""


class Add(NamedTuple):
    """The update S + k v^T, with S already decayed."""

    @property
    def tensors(self) -> Operands:
        """No tensors."""
        return None, None, None

    @property
    def reads_before(self) -> bool:
        """False: this update does not read the state."""
        return False


class Delta(NamedTuple):
    """The update S + beta k (v - R^T p)^T, with S already decayed: erase what p recalls of R, then write.

    Args:
        beta: broadcastable to [B, T, H], in [0, 2]; with several steps per token to [B, steps T, H].
        erase_key: p, shaped as k; None is k itself.
        reads: whether R is the decayed state (Gated DeltaNet 2412.06464, KDA 2510.26692) or the one before
            the decay (Comba 2506.02475).
        neg_eigval: whether I - beta k p^T may have a negative eigenvalue, beta k . p above 1: writes along
            one key then change sign with every token (2411.12537), and amplify rounding errors of keys. False
            promises that it has none: beside 16-bit inputs a GPU then rounds writes as it does values.
    """

    beta: Tensor
    erase_key: Tensor | None = None
    reads: Reads = "decayed"
    neg_eigval: bool = True

    @property
    def tensors(self) -> Operands:
        """The tensors beta, and p if it is not k."""
        return self.beta, self.erase_key, None

    @property
    def reads_before(self) -> bool:
        """True if the update reads the state before the decay."""
        return self.reads == "undecayed"


class LowRank(NamedTuple):
    """The update S + b (a^T S')^T + k v^T, with S already decayed and S' the state before the decay.

    The transition is diagonal plus low rank (RWKV-7 2503.14456).

    Args:
        a, b: shaped as k.
    """

    a: Tensor
    b: Tensor

    @property
    def tensors(self) -> Operands:
        """The tensors a and b."""
        return None, self.a, self.b

    @property
    def reads_before(self) -> bool:
        """True: this update reads the state before the decay."""
        return True


Update = Add | Delta | LowRank
