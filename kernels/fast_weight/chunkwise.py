"""The fast weight by mini-batches: products of matrices inside, a loop from one to the next.

With x_i the input of a map for query i, x_j and g_j input and gradient for key j, D what was gathered before
and W the weights at the start of the mini-batch, the map's output for query i is (2407.04620, dual form)

    x_i W_i = x_i W + tau_i (x_i D - sum_{j <= i} theta_j (x_i . x_j) g_j)

so no W_i is ever formed. Momentum and decay are linear, too (2501.00663): with products of what is kept,
A_ij = alpha_{j+1} ... alpha_i, and of momentum, E_ij likewise, sums run with A E in place of ones; with a
window (2505.23735) they run with A E B, where B_ij is one if j is in the window of i. What stands in the
window from an earlier mini-batch gets its gradient at the weights of this one.

A call that continues a state may begin anywhere in a mini-batch, each row at a place of its own. Its tokens
are laid out in whole mini-batches, in which empty places change nothing.
"""

import torch
from torch import Tensor

from linbench.kernels.fast_weight.call import Call
from linbench.kernels.fast_weight.description import Maps, Memory
from linbench.kernels.fast_weight.mini_batch import finish
from linbench.kernels.fast_weight.mixing import Mixing, Tokens, mix
from linbench.kernels.fast_weight.network import gradients, values
from linbench.kernels.fast_weight.single import single_changes


def chunkwise(call: Call) -> tuple[Tensor, Tensor]:
    """Return o [B, T, H, V] and the state after the last token."""
    memory = call.memory()
    learned = call.learned(memory)
    momentum, keep, sizes = (
        None if gate is None else gate.transpose(1, 2)
        for gate in (call.log_momentum, call.log_keep, call.step_sizes)
    )
    tokens = Tokens(call.q.transpose(1, 2), learned, momentum, keep, sizes, None)
    if call.seen is None:
        o, memory = _from_start(call, tokens, memory)
    elif call.q.shape[1] == 1:
        o, memory = _one_token(call, tokens, memory, call.seen)
    else:
        o, memory = _from_anywhere(call, tokens, memory, call.seen)
    return o.transpose(1, 2), call.remembered(learned, memory).pack(call.step)


def _part(tokens: Tokens, start: int, end: int, call: Call) -> Tokens:
    """Return tokens from `start` to before `end`, which is at a mini-batch's first place."""

    def part(x: Tensor | None) -> Tensor | None:
        return None if x is None else x[:, :, start:end]

    return Tokens(
        tokens.q[:, :, start:end],
        tuple(x[:, :, start : end + call.step.window - 1] for x in tokens.learned),
        part(tokens.log_momentum),
        part(tokens.log_keep),
        part(tokens.step_sizes),
        None if call.scales is None else call.scales[: end - start, None],
        None if tokens.there is None else tokens.there[..., start:end],
    )


def _from_start(call: Call, tokens: Tokens, memory: Memory) -> tuple[Tensor, Memory]:
    step, outputs, length = call.step, [], call.q.shape[1]
    for start in range(0, length, step.size):
        end = min(start + step.size, length)
        o, after = _mini_batch(call, _part(tokens, start, end, call), memory, first=True)
        outputs.append(o)
        if end - start == step.size:
            memory = finish(after, step, call.initial, _last(call.scales))
        elif not step.whole:
            memory = after
    return torch.cat(outputs, dim=2), memory


def _one_token(call: Call, tokens: Tokens, memory: Memory, seen: Tensor) -> tuple[Tensor, Memory]:
    place = seen % call.step.size
    scales = None if call.scales is None else call.scales[place][:, None, None, None]
    o, memory = _mini_batch(call, tokens._replace(scales=scales), memory)
    return o, _finish_where(place == call.step.size - 1, memory, call)


def _from_anywhere(call: Call, given: Tokens, memory: Memory, seen: Tensor) -> tuple[Tensor, Memory]:
    size, length, outputs = call.step.size, call.q.shape[1], []
    place = seen % size  # [B]
    count = -(-(size - 1 + length) // size)

    def tokens_at(before: int) -> tuple[Tensor, Tensor]:
        """Return the token at every place, of which so many are before the first, and if there is one."""
        index = torch.arange(count * size + before, device=seen.device) - place[:, None]
        return index.clamp(0, length + before - 1), (index >= 0) & (index < length + before)

    def lay_out(x: Tensor, found: tuple[Tensor, Tensor]) -> Tensor:
        at, mask = (y.view(len(y), 1, -1, *[1] * (x.dim() - 3)) for y in found)
        spread = at.expand(-1, x.shape[1], -1, *x.shape[3:])
        return torch.where(mask, x.gather(2, spread), 0.0)

    own, windows = tokens_at(0), tokens_at(call.step.window - 1)
    momentum, keep, sizes = (
        None if gate is None else lay_out(gate, own)
        for gate in (given.log_momentum, given.log_keep, given.step_sizes)
    )
    learned = tuple(lay_out(x, windows) for x in given.learned)
    tokens = Tokens(lay_out(given.q, own), learned, momentum, keep, sizes, None, own[1][:, None])
    for n in range(count):
        o, memory = _mini_batch(call, _part(tokens, n * size, (n + 1) * size, call), memory)
        outputs.append(o)
        memory = _finish_where(place + length >= (n + 1) * size, memory, call)
    o = torch.cat(outputs, dim=2)
    places = (place[:, None] + torch.arange(length, device=seen.device))[:, None, :, None]
    return o.gather(2, places.expand(-1, o.shape[1], -1, o.shape[3])), memory


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
    return Memory(weights, gathered, momentum, gates, memory.window)


def _mini_batch(call: Call, tokens: Tokens, memory: Memory, *, first: bool = False) -> tuple[Tensor, Memory]:
    """Return the outputs of tokens [B, H, L, V], and the memory after them.

    Args:
        first: whether the tokens are the first of their mini-batch, so that nothing is gathered.
    """
    step, weights = call.step, memory.weights
    k, v, all_rates = tokens.learned
    inputs, slopes = gradients(call, weights, k, v)
    rates = torch.split(all_rates, 1, dim=-1)
    rates = rates if len(rates) == len(slopes) else rates * len(slopes)
    # of key j: its change of W is the outer product of input and -rate * slope
    slopes = tuple(-rate * slope for rate, slope in zip(rates, slopes, strict=True))
    mixing = mix(tokens, step)
    if step.orthogonal and step.reads == "own":
        return _by_matrices(call, tokens, memory, single_changes(mixing, memory, inputs, slopes, step))

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

    return values(call.network, call.norm, read, tokens.q), _after(tokens, memory, mixing, inputs, slopes)


def _by_matrices(
    call: Call, tokens: Tokens, memory: Memory, found: tuple[Maps, Maps]
) -> tuple[Tensor, Memory]:
    """Return what `_mini_batch` does, of all changes as matrices [B, H, L, I, O] and of the last momentum."""
    changes, momentum = found

    def read(m: int, x: Tensor) -> Tensor:
        change = (x[..., None, :] @ changes[m])[..., 0, :]
        return x @ memory.weights[m] + (change if tokens.scales is None else tokens.scales * change)

    gathered = tuple(change[:, :, -1] for change in changes)
    after = memory._replace(gathered=gathered, momentum=momentum if call.step.momentum else ())
    return values(call.network, call.norm, read, tokens.q), after


def _after(tokens: Tokens, memory: Memory, mixing: Mixing, inputs: Maps, slopes: Maps) -> Memory:
    """Return the memory after the last of some tokens."""
    weights, gathered, momentum, gates, window = memory

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
    if mixing.last is not None and mixing.made is not None and mixing.left is not None:
        change = [each + mixing.last[..., -1:, :] * s for each, s in zip(change, momentum, strict=True)]
        left = mixing.left[..., -1:, :]
        momentum = tuple(left * momentum[m] + summed(mixing.made, m) for m in count)
    if gates is not None:
        given = [gate.exp() for gate in (tokens.log_momentum, tokens.log_keep) if gate is not None]
        counted = given if tokens.there is None else [gate * tokens.there for gate in given]
        gates = gates + torch.stack([gate.sum(dim=-1) for gate in counted], dim=-1)
    return Memory(weights, tuple(change), momentum, gates, window)
