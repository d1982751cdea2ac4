"""The fast weight as a loop over tokens, with gradients by autograd. Faster forms are tested against it.

TTT-Linear and TTT-MLP 2407.04620, Titans 2501.00663, LaCT 2505.23884, Atlas 2505.23735.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.fast_weight.call import NORM_EPS, Call
from linbench.kernels.fast_weight.description import Maps, Memory
from linbench.kernels.fast_weight.mini_batch import finish
from linbench.kernels.fast_weight.newton_schulz import orthogonalise


def reference(call: Call) -> tuple[Tensor, Tensor]:
    """Return o [B, T, H, V] and the state after the last token, one token after the other.

    With W the weights at the start of a token's mini-batch and c the window:

        g_t = sum_{t-c < i <= t} gamma_i d loss(W; k_i, v_i) / dW,  S_t = eta_t S_{t-1} - g_t
        M_t = alpha_t M_{t-1} + theta_t NewtonSchulz(S_t),  o_t = f(q_t; W + tau (M_t - W))

    for reads = "own", with NewtonSchulz where changes are made orthogonal. gamma are `rates`, theta
    `step_sizes`. For "before" o_t = f(q_t; W), and a mini-batch ends as in `mini_batch.finish`.
    """
    if call.seen is not None and len(call.q) > 1:  # rows may stand at different places
        rows = [_loop(call.row(b), int(call.seen[b])) for b in range(len(call.q))]
        return torch.cat([o for o, _ in rows]), torch.cat([state for _, state in rows])
    return _loop(call, 0 if call.seen is None else int(call.seen[0]))


def _loop(call: Call, seen: int) -> tuple[Tensor, Tensor]:
    step, outputs, memory = call.step, [], call.memory()
    learned, between = call.learned(memory), memory
    for t in range(call.q.shape[1]):
        place = (seen + t) % step.size
        scale = None if call.scales is None else call.scales[place]
        change = _change(call, memory.weights, tuple(x[:, :, t : t + step.window] for x in learned))
        memory = _gather(call, memory, change, t)
        weights = memory.weights
        if step.reads == "own":
            change = memory.gathered if scale is None else tuple(scale * d for d in memory.gathered)
            weights = tuple(w + d for w, d in zip(weights, change, strict=True))
        outputs.append(_apply(call, weights, call.q[:, t, :, None])[:, :, 0])
        if place == step.size - 1:
            memory = between = finish(memory, step, call.initial, scale)
    memory = between if step.whole else memory
    return torch.stack(outputs, dim=1), call.remembered(learned, memory).pack(step)


def _gather(call: Call, memory: Memory, change: Maps, t: int) -> Memory:
    """Return the memory with what token t changes."""
    momentum, keep, size = (
        None if gate is None else gate[:, t, :, None, None]
        for gate in (call.log_momentum, call.log_keep, call.step_sizes)
    )
    weights, gathered, last, gates, _ = memory
    if gates is not None:
        now = [gate[..., 0].exp() for gate in (momentum, keep) if gate is not None]
        memory = memory._replace(gates=gates + torch.cat(now, dim=-1))
    elif call.step.reads == "own":
        if momentum is not None:
            change = last = tuple(momentum.exp() * s + each for s, each in zip(last, change, strict=True))
        if call.step.orthogonal:
            change = tuple(orthogonalise(each, call.step.orthogonal) for each in change)
        if size is not None:
            change = tuple(size * each for each in change)
        if keep is not None:  # keep (W + D) - W
            keep = keep.exp()
            gathered = tuple(keep * d - (1 - keep) * w for d, w in zip(gathered, weights, strict=True))
    gathered = tuple(d + each for d, each in zip(gathered, change, strict=True))
    return memory._replace(gathered=gathered, momentum=last)


def _change(call: Call, weights: Maps, learned: Maps) -> Maps:
    """Return -sum_i gamma_i d loss(W; k_i, v_i) / dW, for keys, values and rates of a window [B, H, c, ...].

    It has a gradient itself if one may be asked for.
    """
    further = torch.is_grad_enabled()
    k, v, rates = learned
    with torch.enable_grad():
        weights = tuple(w if further and w.requires_grad else w.detach().requires_grad_() for w in weights)
        y = _apply(call, weights, k)
        losses = 0.5 * (y - v).square() if call.network.loss == "squares" else -(y * v)
        if call.step.window > 1:
            gradients = torch.autograd.grad((rates * losses).sum(), weights, create_graph=further)
            return tuple(-g for g in gradients)
        gradients = torch.autograd.grad(losses.sum(), weights, create_graph=further)
    of_maps = rates[:, :, 0, :, None, None].unbind(dim=2)  # [B, H, maps or 1, 1, 1]
    of_maps = of_maps if len(of_maps) == len(gradients) else of_maps * len(gradients)
    return tuple(-rate * g for rate, g in zip(of_maps, gradients, strict=True))


def _apply(call: Call, weights: Maps, x: Tensor) -> Tensor:
    """Return the network's values [B, H, L, V] for x [B, H, L, K]."""
    network = call.network

    def multiply(x: Tensor, w: Tensor) -> Tensor:
        return torch.einsum("bhli,bhio->bhlo", F.pad(x, (0, 1), value=1.0) if network.bias else x, w)

    if network.kind == "linear":
        y = multiply(x, weights[0])
    elif network.kind == "mlp":
        y = multiply(F.gelu(multiply(x, weights[0]), approximate="tanh"), weights[1])
    else:
        y = multiply(F.silu(multiply(x, weights[0])) * multiply(x, weights[1]), weights[2])
    if call.norm is not None:
        weight, bias = (each[:, None] for each in call.norm)
        centred = y - y.mean(dim=-1, keepdim=True)
        y = weight * centred / (centred.square().mean(dim=-1, keepdim=True) + NORM_EPS).sqrt() + bias
    return x + y if network.residual else y
