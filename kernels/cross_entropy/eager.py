"""Loss and gradient of a block of logits in torch."""

import torch
from torch import Tensor


def block(
    logits: Tensor, targets: Tensor, ignore: int, share: Tensor, losses: Tensor, *, gradients: bool
) -> None:
    """Write the losses of logits [R, n, V] with targets [R, n] into losses [R, n], in at least float32.

    Args:
        share: [R], the weight of a row in the mean. Rows to ignore have loss and gradient zero.
        gradients: whether to write the gradient over the logits in their place.
    """
    log_probability = torch.log_softmax(logits, dim=-1, dtype=losses.dtype)
    due = targets != ignore
    target = targets.masked_fill(~due, 0)[..., None]
    losses.copy_((-log_probability.gather(-1, target)[..., 0]).masked_fill_(~due, 0.0))
    if gradients:
        scale = (share[:, None] * due)[..., None]
        slopes = log_probability.exp_().scatter_add_(-1, target, torch.full_like(scale, -1.0))
        torch.mul(slopes, scale, out=logits) if logits.dtype == slopes.dtype else logits.copy_(
            slopes.mul_(scale)
        )
