"""Titans' memory as a gate of window attention, by hand."""

from typing import Any

import torch
from torch import Tensor

from linbench.models.attention import Attention
from linbench.models.titans_mag import TitansMAG
from tests.helpers.models import B, Error, Randomise, build_mixer
from tests.helpers.trained_memories import (
    LENGTHS,
    assert_is_by_hand,
    drawn,
    heads,
    recalled,
    rms_normed,
    turned,
    unit,
)


def mag_by_hand(mixer: Any, x: Tensor) -> Tensor:
    """Attention over a list of keys beside a memory that is trained token by token, by autograd."""
    s, w = mixer.settings, dict(mixer.named_parameters())
    rate, eta, alpha = (
        (x @ w[f"{name}.weight"].T + w[f"{name}.bias"]).sigmoid()[..., None, None]
        for name in ("rate", "momentum", "keep")
    )
    M = [m.expand(B, *m.shape) for m in mixer.initial(x)]
    S, base, rows, keys, values = [torch.zeros_like(m) for m in M], M, [], [], []

    for t, (q, k, v) in enumerate(zip(*heads(mixer, x), strict=True)):
        q, k = unit(q), unit(k)
        loss = (recalled(k, base, w) - v).square().sum() / 2
        gradients = torch.autograd.grad(loss, base, create_graph=True)
        S = [eta[:, t] * last - s.inner_rate * rate[:, t] * g for last, g in zip(S, gradients, strict=True)]
        M = [alpha[:, t] * m + change for m, change in zip(M, S, strict=True)]
        keys, values = [*keys, turned(k, t)][-s.window :], [*values, v][-s.window :]
        scores = torch.einsum("bhk,sbhk->bhs", turned(q, t), torch.stack(keys)) * w["scale"][:, None]
        attended = torch.einsum("bhs,sbhk->bhk", scores.softmax(-1), torch.stack(values))
        gate = (rms_normed(recalled(q, M, w)) * w["memory_norm.weight"]).sigmoid()
        rows.append((rms_normed(attended) * w["attention_norm.weight"] * gate).flatten(-2))
        if t % s.mini_batch == s.mini_batch - 1:
            base = M
    return torch.stack(rows, dim=1) @ w["readout.linear.weight"].T


@LENGTHS
def test_mag_is_its_equation(generator: torch.Generator, randomise: Randomise, length: int) -> None:
    mixer = randomise(build_mixer(TitansMAG, conv=0, mini_batch=8, window=5))
    with torch.no_grad():
        mixer.keep.bias += 4  # what is divided by its size must not vanish
    x = drawn(generator, length).requires_grad_()
    assert_is_by_hand(mixer, mag_by_hand(mixer, x), x, generator)


@torch.no_grad()
def test_with_a_gate_of_one_half_it_is_attention_with_a_norm(
    generator: torch.Generator, randomise: Randomise, relative_error: Error
) -> None:
    mixer = randomise(build_mixer(TitansMAG))
    plain = build_mixer(Attention, window=16, conv=4, qk_norm="l2", output_norm="rms")
    mixer.memory_norm.weight.zero_()
    mixer.attention_norm.weight.mul_(2)
    same = mixer.state_dict()
    same["readout.norm.weight"] = mixer.attention_norm.weight / 2
    plain.load_state_dict({name: same[name] for name in plain.state_dict()})
    x = drawn(generator, 40)
    assert relative_error(mixer(x).y, plain(x).y) < 1e-12
    assert relative_error(mixer.first_token_share(x[:, :12]), plain.first_token_share(x[:, :12])) < 1e-12


@torch.no_grad()
def test_the_memory_reaches_beyond_the_window(generator: torch.Generator, randomise: Randomise) -> None:
    mixer, x = randomise(build_mixer(TitansMAG, window=1, conv=0)), drawn(generator, 9)
    changed = torch.cat([x[:, :2], -x[:, 2:3], x[:, 3:]], dim=1)
    moved = (mixer(changed).y - mixer(x).y).abs().amax(dim=(0, 2)) > 1e-9
    assert moved.tolist() == [False] * 2 + [True] * 7
