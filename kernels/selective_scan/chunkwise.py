"""The same as a recurrence of single numbers, of which every token has W N: quick to write, and large."""

from torch import Tensor

from linbench.kernels.scan import scan


def chunkwise(
    u: Tensor, step: Tensor, rate: Tensor, write: Tensor, read: Tensor, state: Tensor, signed: bool
) -> tuple[Tensor, Tensor]:
    """Arguments and results as in `reference`."""
    decay = (step[..., None] * rate).exp()
    decay = 2 * decay - 1 if signed else decay
    written = (step * u)[..., None] * write[..., None, :]
    h, last = scan(decay.flatten(-2), written.flatten(-2), state.flatten(-2))
    y = (h.view(*u.shape, -1) @ read[..., None]).squeeze(-1)
    return y, last.view(state.shape)
