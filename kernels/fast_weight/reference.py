"""The fast weight as a loop over tokens, with gradients by autograd. Faster forms are tested against it.

TTT-Linear and TTT-MLP 2407.04620, Titans 2501.00663, LaCT 2505.23884.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.fast_weight.call import NORM_EPS, Call
from linbench.kernels.fast_weight.description import Maps, Memory
from linbench.kernels.fast_weight.mini_batch import finish


def reference(call: Call) -> tuple[Tensor, Tensor]:
    """Return o [B, T, H, V] and the state after the last token, one token after the other.

    With W the weights at the start of a token's mini-batch and g_t = d loss(W; k_t, v_t) / dW:

        S_t = eta_t S_{t-1} - theta_t g_t,  M_t = alpha_t M_{t-1} + S_t,  o_t = f(q_t; W + tau (M_t - W))

    for reads = "own". For "before" o_t = f(q_t; W), and a mini-batch ends as in `mini_batch.finish`.
    """
    if call.seen is not None and len(call.q) > 1:  # rows may stand at different places
        rows = [_loop(call.row(b), int(call.seen[b])) for b in range(len(call.q))]
        return torch.cat([o for o, _ in rows]), torch.cat([state for _, state in rows])
    return _loop(call, 0 if call.seen is None else int(call.seen[0]))


def _loop(call: Call, seen: int) -> tuple[Tensor, Tensor]:
    step, outputs, memory = call.step, [], call.memory()
    for t in range(call.q.shape[1]):
        place = (seen + t) % step.size
        scale = None if call.scales is None else call.scales[place]
        memory = _gather(call, memory, t)
        weights = memory.weights
        if step.reads == "own":
            change = memory.gathered if scale is None else tuple(scale * d for d in memory.gathered)
            weights = tuple(w + d for w, d in zip(weights, change, strict=True))
        outputs.append(_apply(call, weights, call.q[:, t]))
        if place == step.size - 1:
            memory = finish(memory, step, call.initial, scale)
    return torch.stack(outputs, dim=1), memory.pack(step)


def _gather(call: Call, memory: Memory, t: int) -> Memory:
    """Return the memory with what token t changes."""
    rates = call.rates[:, t, :, :, None, None].unbind(dim=2)  # [B, H, maps or 1, 1, 1]
    gradients = _gradients(call, memory.weights, t)
    rates = rates if len(rates) == len(gradients) else rates * len(gradients)
    change = tuple(-rate * g for rate, g in zip(rates, gradients, strict=True))
    momentum, keep = (
        None if gate is None else gate[:, t, :, None, None].exp()
        for gate in (call.log_momentum, call.log_keep)
    )
    weights, gathered, last, gates = memory
    if gates is not None:
        now = [gate[..., 0] for gate in (momentum, keep) if gate is not None]
        memory = memory._replace(gates=gates + torch.cat(now, dim=-1))
    else:
        if momentum is not None:
            change = last = tuple(momentum * s + each for s, each in zip(last, change, strict=True))
        if keep is not None:  # keep (W + D) - W
            gathered = tuple(keep * d - (1 - keep) * w for d, w in zip(gathered, weights, strict=True))
    gathered = tuple(d + each for d, each in zip(gathered, change, strict=True))
    return memory._replace(gathered=gathered, momentum=last)


def _gradients(call: Call, weights: Maps, t: int) -> Maps:
    """Return d loss(W; k_t, v_t) / dW, which itself has a gradient if one may be asked for."""
    further = torch.is_grad_enabled()
    with torch.enable_grad():
        weights = tuple(w if further and w.requires_grad else w.detach().requires_grad_() for w in weights)
        y, v = _apply(call, weights, call.k[:, t]), call.v[:, t]
        loss = 0.5 * (y - v).square().sum() if call.network.loss == "squares" else -(y * v).sum()
        return torch.autograd.grad(loss, weights, create_graph=further)


def _apply(call: Call, weights: Maps, x: Tensor) -> Tensor:
    """Return the network's values [B, H, V] for x [B, H, K]."""
    network = call.network

    def multiply(x: Tensor, w: Tensor) -> Tensor:
        return torch.einsum("bhi,bhio->bho", F.pad(x, (0, 1), value=1.0) if network.bias else x, w)

    if network.kind == "linear":
        y = multiply(x, weights[0])
    elif network.kind == "mlp":
        y = multiply(F.gelu(multiply(x, weights[0]), approximate="tanh"), weights[1])
    else:
        y = multiply(F.silu(multiply(x, weights[0])) * multiply(x, weights[1]), weights[2])
    if call.norm is not None:
        weight, bias = call.norm
        centred = y - y.mean(dim=-1, keepdim=True)
        y = weight * centred / (centred.square().mean(dim=-1, keepdim=True) + NORM_EPS).sqrt() + bias
    return x + y if network.residual else y
