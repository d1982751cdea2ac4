"""The recurrence of variants whose memory is a small network, trained while it reads: fast weights."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.fast_weight.call import Call
from linbench.kernels.fast_weight.chunkwise import chunkwise
from linbench.kernels.fast_weight.costs import flops_per_token
from linbench.kernels.fast_weight.description import Memory, Network, Step
from linbench.kernels.fast_weight.linear import has_kernel, linear
from linbench.kernels.fast_weight.network import values
from linbench.kernels.fast_weight.reference import reference
from linbench.kernels.operators import choose_backend, require_heads, without_autocast

__all__ = ["VERSION", "Network", "Step", "fast_weight", "flops_per_token", "initial_state", "read"]

VERSION = 1
"""Version, raised whenever a change here changes results.

It is part of the identity of every cell that uses this family.
"""

Backend = Literal["auto", "reference", "chunkwise", "triton"]

_BACKENDS = {"reference": reference, "chunkwise": chunkwise}
_TRITON = {"triton": linear}


def fast_weight(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rates: Tensor,
    initial: Sequence[Tensor],
    *,
    network: Network,
    step: Step,
    norm: tuple[Tensor, Tensor] | None = None,
    scales: Tensor | None = None,
    log_momentum: Tensor | None = None,
    log_keep: Tensor | None = None,
    step_sizes: Tensor | None = None,
    state: Tensor | None = None,
    seen: Tensor | None = None,
    backend: Backend = "auto",
) -> tuple[Tensor, Tensor]:
    """Return what the memory answers to queries while it learns values by their keys.

    Args:
        q, k: [B, T, H, K].
        v: [B, T, H, V].
        rates: what a token's gradient is multiplied by in all changes that sum it [B, T, H], or [B, T, H, M]
            for each of the network's M maps, but not with a window.
        initial: weights before the first token [H, I, O], of each map: `Network.shapes`.
        network: the network and its loss.
        step: the step that a mini-batch makes.
        norm: weight and bias [H, V] of a layer norm of the network's output; None is no norm.
        scales: factor [size] on what a token is read with, by its place in its mini-batch; the last is that
            of the mini-batch. None is one. Only with reads = "own".
        log_momentum: logarithm [B, T, H] <= 0 of the part of the last change that is made again.
        log_keep: logarithm [B, T, H] <= 0 of what is kept of the weights.
        step_sizes: factor [B, T, H] on a token's change, momentum included, when it is added to the weights.
            None is one. Only with reads = "own".
        state: [B, H, N] to continue from, what a call before returned; None is the start.
        seen: number of tokens before the first [B], given with a state and only then; never with whole
            mini-batches, the first of which begins with the first token.
        backend: "auto", "chunkwise" or "reference"; also "triton" on a GPU, from the start, for a linear
            network, squares, and plain steps that are read with reads = "own", mini-batches of at most 32
            tokens and heads of at most 128. Its products have 22 bits.

    Returns: o [B, T, H, V] in the dtype of v, and the state after the last token in at least float32.

    Raises ValueError: arguments that do not fit together, a backend that is not there.
    """
    known = state is None and has_kernel(network, step, k.shape[-1], v.shape[-1])
    backends = _BACKENDS | _TRITON if known else _BACKENDS
    took = choose_backend(backend, backends, v, otherwise="chunkwise", empty="chunkwise")
    require_heads(q=q, k=k, v=v)
    rates = rates if rates.dim() == 4 else rates[..., None]
    _check(q, k, v, rates, initial, network, step, norm, scales)
    _check_gates(v, step, log_momentum, log_keep, step_sizes)
    if (seen is not None) != (state is not None and not step.whole):
        raise ValueError("state and seen must be given together, but for whole mini-batches no seen")
    wide = at_least_float32(v.dtype)

    def widened(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.to(wide)

    call = Call(
        q.to(wide),
        k.to(wide),
        v.to(wide),
        rates.to(wide),
        tuple(w.to(wide) for w in initial),
        network,
        step,
        None if norm is None else (norm[0].to(wide), norm[1].to(wide)),
        widened(scales),
        widened(log_momentum),
        widened(log_keep),
        widened(step_sizes),
        widened(state),
        seen,
    )
    with without_autocast(v):
        o, after = backends[took](call)
    return o.to(v.dtype), after


def read(
    q: Tensor,
    initial: Sequence[Tensor],
    *,
    network: Network,
    step: Step,
    norm: tuple[Tensor, Tensor] | None = None,
    state: Tensor | None = None,
) -> Tensor:
    """Return what the memory answers to queries, with the weights of the last start of a mini-batch.

    It learns nothing. Arguments are those of `fast_weight`.

    Returns: [B, T, H, V] in the dtype of q.

    Raises ValueError: queries do not fit the initial weights.
    """
    require_heads(q=q)
    if q.shape[2:] != (len(initial[0]), initial[0].shape[1] - network.bias):
        raise ValueError(
            f"q must be [B, T, H, K] for the weights {tuple(initial[0].shape)}, not {tuple(q.shape)}"
        )
    wide = at_least_float32(q.dtype)
    maps = tuple(w.to(wide) for w in initial)
    if state is not None:
        shapes = [(w.shape[-2], w.shape[-1]) for w in maps]
        maps = Memory.unpack(state.to(wide), shapes, network, step).weights
    norm = None if norm is None else (norm[0].to(wide), norm[1].to(wide))
    with without_autocast(q):
        o = values(network, norm, lambda m, x: x @ maps[m], q.to(wide).transpose(1, 2))
    return o.transpose(1, 2).to(q.dtype)


def initial_state(initial: Sequence[Tensor], network: Network, step: Step, batch: int) -> Tensor:
    """Return the state [B, H, N] before the first token, for initial weights [H, I, O] of all maps."""
    wide = tuple(w.to(at_least_float32(w.dtype)) for w in initial)
    return Memory.start(wide, network, step, batch).pack(step)


def _check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rates: Tensor,
    initial: Sequence[Tensor],
    network: Network,
    step: Step,
    norm: tuple[Tensor, Tensor] | None,
    scales: Tensor | None,
) -> None:
    *most, key_dim, value_dim = *v.shape[:3], k.shape[-1], v.shape[-1]
    hidden = initial[0].shape[-1] if initial else 0
    shapes = [(v.shape[2], *shape) for shape in network.shapes(key_dim, hidden, value_dim)]
    if (
        q.shape != k.shape
        or [*k.shape[:3]] != most
        or v.shape[1] < 1
        or [tuple(w.shape) for w in initial] != shapes
    ):
        raise ValueError(
            "q, k [B, T, H, K], v [B, T, H, V] with T >= 1, and initial weights of the network's shapes, not"
            f" {[tuple(x.shape) for x in (q, k, v, *initial)]} for {network.kind}"
        )
    if [*rates.shape[:3]] != most or rates.shape[3:] not in ((1,), (len(initial),)):
        raise ValueError(f"rates must be [B, T, H] or [B, T, H, {len(initial)}], not {tuple(rates.shape)}")
    if step.window > 1 and rates.shape[3] > 1:
        raise ValueError("rates must be [B, T, H] with a window")
    if norm is not None and not norm[0].shape == norm[1].shape == v.shape[2:]:
        raise ValueError(f"norm must be two tensors {tuple(v.shape[2:])}")
    if network.residual and key_dim != value_dim:
        raise ValueError(f"a residual network has values as wide as keys, not {value_dim} and {key_dim}")
    if scales is not None and (step.reads != "own" or scales.shape != (step.size,)):
        raise ValueError(f"scales must be [{step.size}], and tokens be read with their own gradients")


def _check_gates(
    v: Tensor,
    step: Step,
    log_momentum: Tensor | None,
    log_keep: Tensor | None,
    step_sizes: Tensor | None,
) -> None:
    given = (log_momentum is not None, log_keep is not None)
    if step.size < 1 or step.window < 1 or given != (step.momentum, step.decay):
        raise ValueError(
            "a mini-batch and a window have at least one token, and log_momentum and log_keep are given where"
            f" the step has them, not {given} for {step}"
        )
    gates = (log_momentum, log_keep, step_sizes)
    if any(gate is not None and gate.shape != v.shape[:3] for gate in gates):
        raise ValueError(f"log_momentum, log_keep and step_sizes must be [B, T, H] = {tuple(v.shape[:3])}")
    if step.reads == "own" and step.keeps_norms:
        raise ValueError("norms are kept at the end of a mini-batch: reads must be before")
    if step.whole and step.window > 1:
        raise ValueError("whole mini-batches must have no window")
    if step.reads == "before" and (step.window > 1 or step_sizes is not None):
        raise ValueError("windows and step_sizes are those of single tokens: reads must be own")
