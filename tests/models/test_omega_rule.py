"""OmegaNet and Atlas, by hand, and what they are in special cases."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.fast_weight.newton_schulz import orthogonalise
from linbench.models.atlas import Atlas
from linbench.models.omeganet import OmegaNet
from linbench.models.titans import Titans
from tests.helpers.models import HEADS, B, D, Error, Randomise, build_mixer
from tests.helpers.trained_memories import LENGTHS, assert_is_by_hand, drawn, recalled, rms_normed, unit


def omega_by_hand(mixer: Any, x: Tensor) -> Tensor:
    """Atlas token by token: the gradient of a window's losses by autograd, then momentum, then Muon."""
    s, w = mixer.settings, dict(mixer.named_parameters())
    q, k, v = (
        part.unflatten(-1, (HEADS, -1)) for part in (x @ w["project.linear.weight"].T).split(D, dim=-1)
    )
    one, two = w["project.feature_map.coefficients"]
    q, k = (unit(one * part + two * part**2) for part in (q, k))
    gates = {
        name: (x @ w[f"{name}.weight"].T + w[f"{name}.bias"]).sigmoid()
        for name in ("weigh", "rate", "keep", "momentum")
        if f"{name}.weight" in w
    }
    M = [m.expand(B, *m.shape) for m in mixer.initial(x)]
    S, base, rows = [torch.zeros_like(m) for m in M], M, []

    for t in range(x.shape[1]):
        last = slice(max(0, t - s.window + 1), t + 1)
        losses = (recalled(k[:, last], base, w) - v[:, last]).square().sum(-1) / 2
        loss = (gates["weigh"][:, last] * losses).sum()
        gradients = torch.autograd.grad(loss, base, create_graph=True)
        theta = gates["momentum"][:, t, :, None, None] if s.momentum else 0
        S = [theta * last - g for last, g in zip(S, gradients, strict=True)]
        steps = [orthogonalise(each, s.newton_schulz) for each in S] if isinstance(mixer, Atlas) else S
        eta, alpha = s.inner_rate * gates["rate"], gates["keep"]
        M = [
            alpha[:, t, :, None, None] * m + eta[:, t, :, None, None] * step
            for m, step in zip(M, steps, strict=True)
        ]
        o = recalled(q[:, t : t + 1], M, w)[:, 0]
        o = rms_normed(o) * w["readout.norm.weight"]
        rows.append(o.flatten(-2) * F.silu(x[:, t] @ w["readout.gate.weight"].T))
        if t % s.mini_batch == s.mini_batch - 1:
            base = M
    return torch.stack(rows, dim=1) @ w["readout.linear.weight"].T


def forgetful(mixer: Any) -> Any:
    """Keep most of the memory, so that what is divided by its size does not vanish."""
    with torch.no_grad():
        mixer.keep.bias += 4
    return mixer


@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        (OmegaNet, {"window": 5}),
        (OmegaNet, {"window": 12, "momentum": True}),
        (Atlas, {"window": 3, "inner_rate": 0.1}),
    ],
    ids=["omeganet", "omeganet with momentum", "atlas"],
)
@LENGTHS
def test_they_are_their_equation(
    generator: torch.Generator, randomise: Randomise, cls: Any, settings: dict[str, Any], length: int
) -> None:
    mixer = forgetful(randomise(build_mixer(cls, conv=0, mini_batch=8, **settings)))
    x = drawn(generator, length).requires_grad_()
    assert_is_by_hand(mixer, omega_by_hand(mixer, x), x, generator)


@pytest.mark.parametrize("momentum", [False, True])
@torch.no_grad()
def test_a_window_of_one_and_features_of_degree_one_are_titans(
    generator: torch.Generator, randomise: Randomise, relative_error: Error, momentum: bool
) -> None:
    """Weights of the window's tokens stand for Titans' rates, and steps have the size one."""
    titans = randomise(build_mixer(Titans, inner_rate=1.0, momentum=momentum))
    mixer = build_mixer(OmegaNet, inner_rate=1.0, momentum=momentum, window=1, feature_map="powers-1")
    same = {name: p for name, p in titans.state_dict().items() if not name.startswith("rate.")}
    mixer.load_state_dict(same, strict=False)
    assert mixer.project.feature_map.coefficients.tolist() == [1.0]
    mixer.weigh.load_state_dict(titans.rate.state_dict())
    mixer.rate.weight.zero_()
    mixer.rate.bias.fill_(50.0)
    x = drawn(generator, 65)
    assert relative_error(mixer(x).y, titans(x).y) < 1e-12


@torch.no_grad()
def test_atlas_without_newton_schulz_is_omeganet(
    generator: torch.Generator, randomise: Randomise, relative_error: Error
) -> None:
    omeganet = randomise(build_mixer(OmegaNet, momentum=True))
    atlas = build_mixer(Atlas, newton_schulz=0, inner_rate=0.1)
    atlas.load_state_dict(omeganet.state_dict())
    x = drawn(generator, 40)
    assert relative_error(atlas(x).y, omeganet(x).y) < 1e-12
    atlas = build_mixer(Atlas, inner_rate=0.1)
    atlas.load_state_dict(omeganet.state_dict())
    assert relative_error(atlas(x).y, omeganet(x).y) > 1e-3


def test_fresh_gates_and_coefficients() -> None:
    still = type("Given", (), {"x": torch.zeros(1, 1, D, dtype=torch.float64)})
    for cls, rate in ((OmegaNet, 0.1), (Atlas, 0.01)):
        mixer = build_mixer(cls)
        gates = mixer.gates(still)
        assert gates.rates.flatten().tolist() == [0.5] * HEADS
        assert gates.step_sizes.flatten().tolist() == pytest.approx([rate / 2] * HEADS)
        assert mixer.project.feature_map.coefficients.tolist() == [1.0, 0.5]
        assert not mixer.parameter_rules()["project.feature_map.coefficients"].decay
