"""Layers whose memory is a network, by hand: token by token, with the gradients of the papers."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from syrupy.assertion import SnapshotAssertion
from torch import Tensor

from linbench.common.errors import UserError
from linbench.kernels.fast_weight.newton_schulz import orthogonalise
from linbench.kernels.matrix_state import Delta, matrix_state
from linbench.models.attention import Attention
from linbench.models.lact import LaCT
from linbench.models.titans import Titans
from linbench.models.ttt_linear import TTTLinear
from linbench.models.ttt_mlp import TTTMLP
from tests.helpers.models import HEADS, B, D, Error, Randomise, build_mixer
from tests.helpers.trained_memories import (
    LENGTHS,
    assert_is_by_hand,
    drawn,
    heads,
    layer_normed,
    recalled,
    rms_normed,
    turned,
    unit,
)


def ttt_by_hand(mixer: Any, x: Tensor) -> Tensor:
    """TTT as published, with one gradient after the other: forward, LN, gradients of LN and of the maps."""
    s, w = mixer.settings, dict(mixer.named_parameters())
    maps = [m.expand(B, *m.shape) for m in mixer.initial(x)]
    gamma, beta = w["inner_norm.weight"], w["inner_norm.bias"]
    deep = len(maps) > 1

    def hidden(x: Tensor, W: list[Tensor]) -> Tensor:
        return F.gelu(affine(x, W[0]), approximate="tanh") if deep else x

    def affine(x: Tensor, W: Tensor) -> Tensor:
        return (x[..., None, :] @ W[..., :-1, :])[..., 0, :] + W[..., -1, :]

    def outer(x: Tensor, g: Tensor) -> Tensor:
        """Gradients of weights and, below, of the bias."""
        return torch.cat([x[..., :, None] * g[..., None, :], g[..., None, :]], dim=-2)

    rates = s.inner_rate / (D // HEADS) * (x @ w["rate.weight"].T + w["rate.bias"]).sigmoid()
    gathered, rows = [torch.zeros_like(m) for m in maps], []
    for t, (q, k, v) in enumerate(zip(*heads(mixer, x), strict=True)):
        place = t % s.mini_batch
        q, k = turned(q, place), turned(k, place)
        z = affine(hidden(k, maps), maps[-1])
        sigma = (z.var(-1, keepdim=True, correction=0) + 1e-6).sqrt()
        normed = layer_normed(z, 1e-6)
        r = gamma * (gamma * normed + beta - (v - k))
        K = z.shape[-1]
        g = (K * r - r.sum(-1, keepdim=True) - normed * (r * normed).sum(-1, keepdim=True)) / (K * sigma)
        gradients = [outer(hidden(k, maps), g)]
        if deep:
            a = affine(k, maps[0])
            c, u = (2 / torch.pi) ** 0.5, 0.044715
            tanh = torch.tanh(c * (a + u * a**3))
            slope = 0.5 * (1 + tanh) + 0.5 * a * (1 - tanh**2) * c * (1 + 3 * u * a**2)
            into = (g[..., None, :] @ maps[1][..., :-1, :].mT)[..., 0, :]
            gradients.insert(0, outer(k, into * slope))
        gathered = [
            d + rates[:, t, :, None, None] * each for d, each in zip(gathered, gradients, strict=True)
        ]
        tau = (1 / (place + 1) + w["token_scale"][place]).clamp(min=0)
        now = [m - tau * d for m, d in zip(maps, gathered, strict=True)]
        o = q + gamma * layer_normed(affine(hidden(q, now), now[-1]), 1e-6) + beta
        rows.append(o.flatten(-2))
        if place == s.mini_batch - 1:
            maps, gathered = now, [torch.zeros_like(m) for m in maps]
    o = torch.stack(rows, dim=1)
    o = layer_normed(o, 1e-5) * w["readout.norm.weight"][0] + w["readout.norm.bias"][0]
    return o @ w["readout.linear.weight"].T


@pytest.mark.parametrize("cls", [TTTLinear, TTTMLP])
@LENGTHS
def test_ttt_is_its_equation(
    generator: torch.Generator, randomise: Randomise, cls: type[TTTLinear], length: int
) -> None:
    mixer, x = randomise(build_mixer(cls)), drawn(generator, length).requires_grad_()
    assert_is_by_hand(mixer, ttt_by_hand(mixer, x), x, generator)


@LENGTHS
@torch.no_grad()
def test_ttt_linear_without_norm_is_the_delta_rule_with_a_one_in_every_key(
    generator: torch.Generator, randomise: Randomise, relative_error: Error, length: int
) -> None:
    settings = {"inner_norm": False, "inner_residual": False, "initial": "zero", "positions": "none"}
    mixer = randomise(build_mixer(TTTLinear, mini_batch=1, qk_norm="l2", output_norm="none", **settings))
    mixer.token_scale.zero_()
    x = drawn(generator, length)
    q, k, v = (part.transpose(0, 1) for part in heads(mixer, x))
    q, k = (F.pad(unit(part), (0, 1), value=1.0) for part in (q, k))
    beta = mixer.gates(type("Given", (), {"x": x})).rates
    o, memory = matrix_state(q, k, v, update=Delta(beta, neg_eigval=True), scale=1.0)
    y, state, _ = mixer(x)
    assert relative_error(y, o.flatten(-2) @ mixer.readout.linear.weight.T) < 1e-12
    assert relative_error(state.memory, memory.flatten(-2)) < 1e-12


def test_a_fresh_ttt_steps_by_half_its_rate_and_by_means() -> None:
    mixer = build_mixer(TTTLinear)
    assert mixer.scales().tolist() == [1 / i for i in range(1, 17)]
    still = type("Given", (), {"x": torch.zeros(1, 1, D, dtype=torch.float64)})
    assert mixer.gates(still).rates.tolist() == [[[0.5 / (D // HEADS)] * HEADS]]
    (memory,) = mixer.initial(mixer.readout.linear.weight)
    assert not memory[:, -1].any()
    assert 0.01 < memory[:, :-1].std() < 0.03


@torch.no_grad()
def test_with_unit_keys_a_fresh_ttt_mlp_changes_its_bias_and_not_what_a_key_recalls(
    generator: torch.Generator,
) -> None:
    mixer = build_mixer(TTTMLP)
    weights, keys = mixer.initial.maps[0][:, :-1], drawn(generator, HEADS)[..., : D // HEADS]

    def beside_bias(keys: Tensor) -> float:
        """Return what a step adds to its own key's answer by weights, over what it adds by the bias."""
        hidden = F.gelu(torch.einsum("bhk,hkn->bhn", keys, weights), approximate="tanh")
        return hidden.square().sum(-1).mean().item()

    short = beside_bias(unit(keys))
    assert short < 0.01
    assert beside_bias(unit(keys) * (D // HEADS) ** 0.5) > 2 * short


def lact_by_hand(mixer: Any, x: Tensor) -> Tensor:
    """LaCT as published: matrices [O, I] and the gradients of its three, applied with a plus."""
    s, w = mixer.settings, dict(mixer.named_parameters())
    fast, width = s.fast_heads or HEADS, D // (s.fast_heads or HEADS)
    W0, W2, W1 = (m.mT.expand(B, *m.mT.shape) for m in mixer.fast.initial(x))
    lengths = [m.norm(dim=-1, keepdim=True) for m in (W0, W2, W1)]
    last = [torch.zeros_like(m) for m in (W0, W2, W1)]
    rates = F.softplus(x @ w["fast.rates.weight"].T + w["fast.rates.bias"]).unflatten(-1, (fast, 3))
    rows, keys, values = [], [], []
    sums, gates = [torch.zeros_like(m) for m in last], []

    def share(x: Tensor) -> Tensor:
        return x.flatten(-2).unflatten(-1, (fast, width))

    def activated(i: int, x: Tensor, t: int) -> Tensor:
        y = F.silu(w["fast.scales"][i] * x.flatten(-2) + w["fast.shifts"][i]).unflatten(-1, (fast, width))
        return share(turned(unit(y).flatten(-2).unflatten(-1, (HEADS, -1)), t))

    for t, (q, k, v) in enumerate(zip(*heads(mixer, x), strict=True)):
        keys, values = [*keys, turned(k, t)][-s.window :], [*values, v][-s.window :]
        scores = torch.einsum("bhk,sbhk->bhs", turned(q, t), torch.stack(keys)) / (D // HEADS) ** 0.5
        o = torch.einsum("bhs,sbhk->bhk", scores.softmax(-1), torch.stack(values))
        fast_q, fast_k, fast_v = activated(0, q, t), activated(1, k, t), share(F.silu(v))
        z, h2 = (torch.einsum("bhoi,bhi->bho", m, fast_k) for m in (W0, W2))
        e, sigmoid = torch.einsum("bhoi,bho->bhi", W1, fast_v), z.sigmoid()
        a = F.silu(z) * h2
        parts = ((e * h2 * sigmoid * (1 + z * (1 - sigmoid)), fast_k), (e * F.silu(z), fast_k), (fast_v, a))
        for i, (left, right) in enumerate(parts):
            sums[i] = sums[i] + rates[:, t, :, i, None, None] * left[..., None] * right[..., None, :]
        z, h2 = (torch.einsum("bhoi,bhi->bho", m, fast_q) for m in (W0, W2))
        y = torch.einsum("bhoi,bhi->bho", W1, F.silu(z) * h2)
        y = rms_normed(y) * w["fast.norm.weight"]
        if s.fast_gate:
            y = y * F.silu(x[:, t] @ w["fast.gate.weight"].T + w["fast.gate.bias"])[..., None]
        rows.append(o.flatten(-2) + y.flatten(-2))
        if s.momentum:
            gates.append((x[:, t] @ w["fast.momentum.weight"].T + w["fast.momentum.bias"]).sigmoid())
        if t % s.mini_batch == s.mini_batch - 1:
            if s.momentum:
                mean = torch.stack(gates).mean(dim=0)[..., None, None]
                sums = last = [mean * before + now for before, now in zip(last, sums, strict=True)]
            steps = [orthogonalise(each, 5) for each in sums] if s.muon else sums
            moved = [m + each for m, each in zip((W0, W2, W1), steps, strict=True)]
            W0, W2, W1 = (
                m / (m.norm(dim=-1, keepdim=True) + 1e-5) * n for m, n in zip(moved, lengths, strict=True)
            )
            sums, gates = [torch.zeros_like(m) for m in last], []
    return torch.stack(rows, dim=1) @ w["readout.linear.weight"].T


@pytest.mark.parametrize(
    "settings",
    [{}, {"muon": True, "momentum": False, "fast_heads": 1, "fast_gate": True, "mini_batch": 5, "window": 7}],
    ids=["lact", "lact with muon"],
)
@LENGTHS
def test_lact_is_its_equation(
    generator: torch.Generator, randomise: Randomise, settings: dict[str, Any], length: int
) -> None:
    mixer, x = randomise(build_mixer(LaCT, **settings)), drawn(generator, length).requires_grad_()
    assert_is_by_hand(mixer, lact_by_hand(mixer, x), x, generator)


@torch.no_grad()
def test_lact_without_its_memory_is_attention_with_a_window(
    generator: torch.Generator, randomise: Randomise, relative_error: Error
) -> None:
    mixer, plain = randomise(build_mixer(LaCT)), build_mixer(Attention, window=16)
    mixer.fast.norm.weight.zero_()
    plain.load_state_dict({n: p for n, p in mixer.state_dict().items() if not n.startswith("fast.")})
    x = drawn(generator, 40)
    assert relative_error(mixer(x).y, plain(x).y) < 1e-12
    assert relative_error(mixer.first_token_share(x[:, :12]), plain.first_token_share(x[:, :12])) < 1e-12


@torch.no_grad()
def test_a_chunk_reads_what_chunks_before_it_wrote(generator: torch.Generator, randomise: Randomise) -> None:
    """Beyond the window only the memory sees, and only when its chunk is over."""
    mixer, x = randomise(build_mixer(LaCT, mini_batch=4, window=1)), drawn(generator, 9)
    changed = torch.cat([-x[:, :1], x[:, 1:]], dim=1)
    moved = (mixer(changed).y - mixer(x).y).abs().amax(dim=(0, 2)) > 1e-9
    assert moved.tolist() == [t == 0 or t >= 4 for t in range(9)]


def titans_by_hand(mixer: Any, x: Tensor) -> Tensor:
    """Titans token by token, with gradients by autograd at the weights before the mini-batch."""
    s, w = mixer.settings, dict(mixer.named_parameters())
    q, k, v = (
        part.unflatten(-1, (HEADS, -1)) for part in (x @ w["project.linear.weight"].T).split(D, dim=-1)
    )
    q, k = unit(q), unit(k)
    rate, eta, alpha = (
        (x @ w[f"{name}.weight"].T + w[f"{name}.bias"]).sigmoid()[..., None, None]
        for name in ("rate", "momentum", "keep")
    )
    M = [m.expand(B, *m.shape) for m in mixer.initial(x)]
    S, base, rows = [torch.zeros_like(m) for m in M], M, []

    for t in range(x.shape[1]):
        loss = (recalled(k[:, t], base, w) - v[:, t]).square().sum() / 2
        gradients = torch.autograd.grad(loss, base, create_graph=True)
        S = [eta[:, t] * last - s.inner_rate * rate[:, t] * g for last, g in zip(S, gradients, strict=True)]
        M = [alpha[:, t] * m + change for m, change in zip(M, S, strict=True)]
        o = recalled(q[:, t], M, w)
        o = rms_normed(o) * w["readout.norm.weight"]
        rows.append(o.flatten(-2) * F.silu(x[:, t] @ w["readout.gate.weight"].T))
        if t % s.mini_batch == s.mini_batch - 1:
            base = M
    return torch.stack(rows, dim=1) @ w["readout.linear.weight"].T


@pytest.mark.parametrize("network", ["linear", "mlp"])
@LENGTHS
def test_titans_are_their_equation(
    generator: torch.Generator, randomise: Randomise, network: str, length: int
) -> None:
    mixer = randomise(build_mixer(Titans, network=network, conv=0, mini_batch=8))
    with torch.no_grad():
        mixer.keep.bias += 4  # what is divided by its size must not vanish
    x = drawn(generator, length).requires_grad_()
    assert_is_by_hand(mixer, titans_by_hand(mixer, x), x, generator)


@LENGTHS
@torch.no_grad()
def test_linear_titans_without_momentum_are_a_gated_delta_rule(
    generator: torch.Generator, randomise: Randomise, relative_error: Error, length: int
) -> None:
    plain = {"inner_norm": False, "inner_residual": False, "output_norm": "none", "output_gate": "none"}
    mixer = randomise(build_mixer(Titans, network="linear", momentum=False, mini_batch=1, conv=0, **plain))
    x = drawn(generator, length)
    q, k, v = (part.transpose(0, 1) for part in heads(mixer, x))
    gates = mixer.gates(type("Given", (), {"x": x}))
    (start,) = mixer.initial(x)
    o, memory = matrix_state(
        unit(q),
        unit(k),
        v,
        log_decay=gates.log_keep,
        update=Delta(gates.rates, reads="undecayed", neg_eigval=True),
        scale=1.0,
        state=start.expand(B, *start.shape),
    )
    y, state, _ = mixer(x)
    assert relative_error(y, o.flatten(-2) @ mixer.readout.linear.weight.T) < 1e-12
    assert relative_error(state.memory, memory.flatten(-2)) < 1e-12


def test_fresh_titans_keep_most_of_their_memory() -> None:
    mixer = build_mixer(Titans)
    still = type("Given", (), {"x": torch.zeros(1, 1, D, dtype=torch.float64)})
    rates, momentum, keep = (each.flatten().tolist() for each in mixer.gates(still)[:3])
    assert rates == pytest.approx([0.05] * HEADS)
    assert momentum == pytest.approx([math.log(0.5)] * HEADS)
    assert keep == pytest.approx([-math.log1p(math.exp(-4))] * HEADS)


REFUSED: dict[str, tuple[Any, dict[str, Any]]] = {
    "values as wide as keys": (TTTLinear, {"expand_v": 2.0}),
    "an even dimension": (TTTMLP, {"heads": 1, "head_dim": 5}),
    "channels for every fast head": (LaCT, {"fast_heads": 3}),
    "weights that have a gradient": (Titans, {"initial": "zero"}),
}


@pytest.mark.parametrize("needs", REFUSED)
def test_what_a_memory_cannot_be_is_refused(snapshot: SnapshotAssertion, needs: str) -> None:
    cls, settings = REFUSED[needs]
    with pytest.raises(UserError) as refused:
        build_mixer(cls, **settings)
    assert str(refused.value) == snapshot
