"""The fast weight by mini-batches: products of matrices inside, a loop from one to the next.

With x_i the input of a map for query i, x_j and g_j input and gradient for key j, D what was gathered before
and W the weights at the start of the mini-batch, the map's output for query i is (2407.04620, dual form)

    x_i W_i = x_i W + tau_i (x_i D - sum_{j <= i} theta_j (x_i . x_j) g_j)

so no W_i is ever formed. Momentum and decay are linear, too (2501.00663): with products of what is kept,
A_ij = alpha_{j+1} ... alpha_i, and of momentum, E_ij likewise, sums run with A E in place of ones.

A call that continues a state may begin anywhere in a mini-batch, each row at a place of its own. Its tokens
are laid out in whole mini-batches, in which empty places change nothing.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from linbench.kernels.fast_weight.call import Call
from linbench.kernels.fast_weight.description import Maps, Memory, Step
from linbench.kernels.fast_weight.mini_batch import finish
from linbench.kernels.fast_weight.network import gradients, values


class Tokens(NamedTuple):
    """Tokens of one mini-batch, or of a part of it.

    q, k: [B, H, L, K]. v: [B, H, L, V]. rates: [B, H, L, M]. log_momentum, log_keep: [B, H, L]. scales:
    broadcastable to [B, H, L, 1]. there: [B, 1, L] where places may be empty.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    rates: Tensor
    log_momentum: Tensor | None
    log_keep: Tensor | None
    scales: Tensor | None
    there: Tensor | None = None


def chunkwise(call: Call) -> tuple[Tensor, Tensor]:
    """Return o [B, T, H, V] and the state after the last token."""
    if call.seen is None:
        return _from_start(call)
    if call.q.shape[1] == 1:
        return _one_token(call, call.seen)
    return _from_anywhere(call, call.seen)


def _tokens(call: Call) -> Tokens:
    q, k, v, rates = (x.transpose(1, 2) for x in (call.q, call.k, call.v, call.rates))
    momentum, keep = (
        None if gate is None else gate.transpose(1, 2) for gate in (call.log_momentum, call.log_keep)
    )
    return Tokens(q, k, v, rates, momentum, keep, None)


def _part(tokens: Tokens, start: int, end: int, scales: Tensor | None) -> Tokens:
    """Return tokens from `start` to before `end`, which is at a mini-batch's first place."""

    def part(x: Tensor | None) -> Tensor | None:
        return None if x is None else x[:, :, start:end]

    return Tokens(
        tokens.q[:, :, start:end],
        tokens.k[:, :, start:end],
        tokens.v[:, :, start:end],
        tokens.rates[:, :, start:end],
        part(tokens.log_momentum),
        part(tokens.log_keep),
        None if scales is None else scales[: end - start, None],
        None if tokens.there is None else tokens.there[..., start:end],
    )


def _from_start(call: Call) -> tuple[Tensor, Tensor]:
    tokens, memory, step, outputs = _tokens(call), call.memory(), call.step, []
    length = call.q.shape[1]
    for start in range(0, length, step.size):
        end = min(start + step.size, length)
        o, memory = _mini_batch(call, _part(tokens, start, end, call.scales), memory, first=True)
        outputs.append(o)
        if end - start == step.size:
            memory = finish(memory, step, call.initial, _last(call.scales))
    return torch.cat(outputs, dim=2).transpose(1, 2), memory.pack(step)


def _one_token(call: Call, seen: Tensor) -> tuple[Tensor, Tensor]:
    place = seen % call.step.size
    scales = None if call.scales is None else call.scales[place][:, None, None, None]
    o, memory = _mini_batch(call, _tokens(call)._replace(scales=scales), call.memory())
    memory = _finish_where(place == call.step.size - 1, memory, call)
    return o.transpose(1, 2), memory.pack(call.step)


def _from_anywhere(call: Call, seen: Tensor) -> tuple[Tensor, Tensor]:
    size, length, memory, outputs = call.step.size, call.q.shape[1], call.memory(), []
    place = seen % size  # [B]
    count = -(-(size - 1 + length) // size)
    index = torch.arange(count * size, device=seen.device) - place[:, None]  # of the token at every place
    there = (index >= 0) & (index < length)
    index = index.clamp(0, length - 1)

    def lay_out(x: Tensor) -> Tensor:
        at, mask = (y.view(len(y), 1, -1, *[1] * (x.dim() - 3)) for y in (index, there))
        spread = at.expand(-1, x.shape[1], -1, *x.shape[3:])
        return torch.where(mask, x.gather(2, spread), 0.0)

    given = _tokens(call)
    tokens = given._replace(
        q=lay_out(given.q),
        k=lay_out(given.k),
        v=lay_out(given.v),
        rates=lay_out(given.rates),
        log_momentum=None if given.log_momentum is None else lay_out(given.log_momentum),
        log_keep=None if given.log_keep is None else lay_out(given.log_keep),
        there=there[:, None],
    )
    for n in range(count):
        part = _part(tokens, n * size, (n + 1) * size, call.scales)
        o, memory = _mini_batch(call, part, memory)
        outputs.append(o)
        memory = _finish_where(place + length >= (n + 1) * size, memory, call)
    o = torch.cat(outputs, dim=2)
    own = (place[:, None] + torch.arange(length, device=seen.device))[:, None, :, None]
    o = o.gather(2, own.expand(-1, o.shape[1], -1, o.shape[3]))
    return o.transpose(1, 2), memory.pack(call.step)


def _last(scales: Tensor | None) -> Tensor | None:
    return None if scales is None else scales[-1]


def _finish_where(done: Tensor, memory: Memory, call: Call) -> Memory:
    """Return the memory of rows whose mini-batch is done [B] as the next begins with, of others as it is."""
    after, mask = finish(memory, call.step, call.initial, _last(call.scales)), done[:, None, None, None]

    def choose(new: Maps, old: Maps) -> Maps:
        return tuple(torch.where(mask, a, b) for a, b in zip(new, old, strict=True))

    weights, gathered, momentum = (choose(a, b) for a, b in zip(after[:3], memory[:3], strict=True))
    gates = memory.gates
    if gates is not None and after.gates is not None:
        gates = torch.where(done[:, None, None], after.gates, gates)
    return Memory(weights, gathered, momentum, gates)


class Mixing(NamedTuple):
    """Shares by which gradients reach the weights of tokens, [B, H, L, L] and [B, H, L, 1].

    change: share of key j's change in what query i reads. kept: of what was gathered before. last: of the
    momentum before. momentum, momentum_left: share of key j, and of the momentum before, in that after i.
    """

    change: Tensor
    kept: Tensor | None
    last: Tensor | None
    momentum: Tensor | None
    momentum_left: Tensor | None


def _mixing(tokens: Tokens, step: Step) -> Mixing:
    length = tokens.q.shape[2]
    ones = tokens.q.new_ones(length, length).tril()
    if step.reads == "before" or not (step.momentum or step.decay):
        return Mixing(ones, None, None, None, None)
    change, kept, last, products, left = ones, None, None, None, None
    if tokens.log_keep is not None:
        change, kept = _products(tokens.log_keep)
    if tokens.log_momentum is not None:
        products, left = _products(tokens.log_momentum)
        if tokens.there is not None:  # at an empty place no change is made again
            change = change * tokens.there[..., None, :]
        last = change @ left
        change = change @ products
    return Mixing(change, kept, last, products, left)


def _products(log_gate: Tensor) -> tuple[Tensor, Tensor]:
    """Return products of gates [B, H, L] after j up to i [B, H, L, L], and of all up to i [B, H, L, 1]."""
    total = log_gate.cumsum(dim=-1)[..., None]
    later = torch.ones(*[log_gate.shape[-1]] * 2, dtype=torch.bool, device=log_gate.device).triu(1)
    return (total - total.mT).masked_fill(later, -torch.inf).exp(), total.exp()


def _mini_batch(call: Call, tokens: Tokens, memory: Memory, *, first: bool = False) -> tuple[Tensor, Memory]:
    """Return the outputs of tokens [B, H, L, V], and the memory after them.

    Args:
        first: whether the tokens are the first of their mini-batch, so that nothing is gathered.
    """
    step, weights = call.step, memory.weights
    inputs, slopes = gradients(call, weights, tokens.k, tokens.v)
    rates = torch.split(tokens.rates, 1, dim=-1)
    rates = rates if len(rates) == len(slopes) else rates * len(slopes)
    # of key j: its change of W is the outer product of input and -rate * slope
    slopes = tuple(-rate * slope for rate, slope in zip(rates, slopes, strict=True))
    mixing = _mixing(tokens, step)

    def read(m: int, x: Tensor) -> Tensor:
        plain = x @ weights[m]
        if step.reads == "before":
            return plain
        change = (mixing.change * (x @ inputs[m].mT)) @ slopes[m]
        if not first:
            gathered = x @ memory.gathered[m]
            change = change + (gathered if mixing.kept is None else mixing.kept * gathered)
        if mixing.kept is not None:
            change = change + (mixing.kept - 1) * plain
        if mixing.last is not None:
            change = change + mixing.last * (x @ memory.momentum[m])
        return plain + (change if tokens.scales is None else tokens.scales * change)

    return values(call, read, tokens.q), _after(tokens, memory, mixing, inputs, slopes)


def _after(tokens: Tokens, memory: Memory, mixing: Mixing, inputs: Maps, slopes: Maps) -> Memory:
    """Return the memory after the last of some tokens."""
    weights, gathered, momentum, gates = memory

    def summed(mix: Tensor, m: int) -> Tensor:
        return inputs[m].mT @ (mix[..., -1, :, None] * slopes[m])

    count = range(len(weights))
    change = [summed(mixing.change, m) for m in count]
    if mixing.kept is None:
        change = [d + each for d, each in zip(gathered, change, strict=True)]
    else:
        kept = mixing.kept[..., -1:, :]
        change = [
            kept * d + (kept - 1) * w + each for d, w, each in zip(gathered, weights, change, strict=True)
        ]
    if mixing.last is not None and mixing.momentum is not None and mixing.momentum_left is not None:
        change = [each + mixing.last[..., -1:, :] * s for each, s in zip(change, momentum, strict=True)]
        left = mixing.momentum_left[..., -1:, :]
        momentum = tuple(left * momentum[m] + summed(mixing.momentum, m) for m in count)
    if gates is not None:
        given = [gate.exp() for gate in (tokens.log_momentum, tokens.log_keep) if gate is not None]
        counted = given if tokens.there is None else [gate * tokens.there for gate in given]
        gates = gates + torch.stack([gate.sum(dim=-1) for gate in counted], dim=-1)
    return Memory(weights, tuple(change), momentum, gates)
