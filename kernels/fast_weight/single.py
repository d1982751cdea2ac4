"""The changes of single tokens as matrices, for steps that do more to a change than to sum it."""

from torch import Tensor

from linbench.kernels.fast_weight.description import Maps, Memory, Step
from linbench.kernels.fast_weight.mixing import Mixing
from linbench.kernels.fast_weight.newton_schulz import orthogonalise


def single_changes(
    mixing: Mixing, memory: Memory, inputs: Maps, slopes: Maps, step: Step
) -> tuple[Maps, Maps]:
    """Return by what the weights of tokens differ from those before the mini-batch, and the last momentum.

    Momentum is linear in gradients, so that of all tokens comes from one product; so do weights from changes.
    Only what is done to a change in between needs it as a matrix [B, H, L, I, O]. Atlas, arXiv:2505.23735.

    Args:
        mixing: shares of gradients and of changes.
        memory: before the tokens.
        inputs: of every map, for keys [B, H, S, I].
        slopes: what the outputs of every map are to change by, for keys [B, H, S, O].
    """
    changes, momentum = [], []
    for m, weights in enumerate(memory.weights):
        made = _made(mixing, inputs[m], slopes[m])
        if mixing.left is not None:
            made = made + mixing.left[..., None] * memory.momentum[m][:, :, None]
        momentum.append(made[:, :, -1])
        change = _times(mixing.written, orthogonalise(made, step.orthogonal))
        gathered = memory.gathered[m][:, :, None]
        if mixing.kept is not None:
            kept = mixing.kept[..., None]
            gathered = kept * gathered + (kept - 1) * weights[:, :, None]
        changes.append(change + gathered)
    return tuple(changes), tuple(momentum)


def _made(mixing: Mixing, inputs: Tensor, slopes: Tensor) -> Tensor:
    """Return each token's sum of gradients [B, H, L, I, O]."""
    if mixing.made is None:
        return inputs[..., :, None] * slopes[..., None, :]
    return inputs.mT[:, :, None] @ (mixing.made[..., None] * slopes[:, :, None])


def _times(shares: Tensor, changes: Tensor) -> Tensor:
    """Return sums over changes [B, H, L, I, O] with shares [.., L, L]."""
    return (shares @ changes.flatten(-2)).view(changes.shape)
