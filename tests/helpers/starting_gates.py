"""The share of their memory that variants keep from token to token before training, on inputs of a task."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.models.backbone import Backbone
from linbench.models.blocks.heads import share_input
from tests.helpers.cells import plan
from tests.helpers.initial_weights import MIXERS


def _made(mixer: Any, x: Tensor) -> Tensor:
    """The decays of a mixer whose gate is a module of its own."""
    return mixer.decay(share_input(x, mixer, mixer.readout))


def _shifted(mixer: Any, x: Tensor) -> Tensor:
    return mixer.log_decay(mixer.project_tokens(x, None).streams)


def _hgrn2(mixer: Any, x: Tensor) -> Tensor:
    return mixer.log_decay(mixer.project(share_input(x, mixer, mixer.readout), None)[1])


def _dfw(mixer: Any, x: Tensor) -> Tensor:
    """An entry's decay is the product of its row's and its column's."""
    return mixer.key_decay(x)[..., :, None] + mixer.value_decay(x)[..., None, :]


def _mamba(mixer: Any, x: Tensor) -> Tensor:
    u, _ = mixer.conv(mixer.inner(x), None)
    return -F.softplus(mixer.step(u))[..., None] * mixer.A_log.exp()


def _rg_lru(mixer: Any, x: Tensor) -> Tensor:
    return mixer.log_decay(mixer.conv(mixer.inner(x), None)[0])


def _minimal(mixer: Any, x: Tensor) -> Tensor:
    return F.logsigmoid(-mixer.update_logits(mixer.conv(x, None)[0]))


def _recurrent(mixer: Any, x: Tensor) -> Tensor:
    """The gate reads the memory, so it is computed token by token. It is the second of the gates."""
    state, gates = mixer.init_state(len(x), capacity=x.shape[1]), []
    for token in x.split(1, dim=1):
        h = state.memory[:, -1]
        gate = mixer.project(mixer.conv(token, state.conv)[0])[:, 0] + mixer.recurrent(h)
        gates.append(F.logsigmoid(gate.chunk(mixer.maps, dim=-1)[1]))
        state = mixer(token, state).state
    return torch.stack(gates, dim=1)


LOG_DECAYS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    **dict.fromkeys(
        ("fox", "path_fox"), lambda mixer, x: mixer.log_forget(share_input(x, mixer, mixer.readout))
    ),
    "raven": lambda mixer, x: mixer.whole_decay(share_input(x, mixer, mixer.readout)),
    "rfa": lambda mixer, x: F.logsigmoid(mixer.gate(x)),
    "mlstm": lambda mixer, x: F.logsigmoid(mixer._capped(mixer.forget(x))),
    **dict.fromkeys(("mesanet", "mesa_layer"), lambda mixer, x: F.logsigmoid(mixer.forget(x))),
    "hgrn2": _hgrn2,
    "dfw": _dfw,
    "mamba": _mamba,
    "attention_mamba": lambda mixer, x: _mamba(mixer.beside, x),
    "attention_mamba2": lambda mixer, x: _made(mixer.beside, x),
    **dict.fromkeys(("lstm", "gru"), _recurrent),
    "rg_lru": _rg_lru,
    **dict.fromkeys(("mingru", "minlstm"), _minimal),
    "rwkv4": lambda mixer, x: -mixer.time_decay.exp(),
    **dict.fromkeys(
        (
            "gla",
            "gsa",
            "kda",
            "gated_deltanet",
            "gated_deltanet2",
            "gated_deltaproduct",
            "comba",
            "mom",
            "log_linear_gdn",
            "log_linear_mamba2",
            "kaczmarz",
            "gated_kalmanet",
            "precond_gdn",
            "precond_kda",
            "mamba2",
            "mamba3",
        ),
        _made,
    ),
    # of the momentum, which is the memory that lasts
    "momentum_deltanet": lambda mixer, x: mixer.log_momentum(share_input(x, mixer, mixer.readout)),
    **dict.fromkeys(("rwkv5", "rwkv6", "rwkv7"), _shifted),
}
"""The logarithms of a variant's decays for inputs [B, T, D], by its name."""

NEEDED = {"rfa": "gated=true", "mesa_layer": "decay=sigmoid"}
"""The setting that a variant needs in order to forget."""


def starting_at(name: str, forget_bias: float, *more: str) -> str:
    """The pattern of a variant whose gates start at sigmoid(forget_bias)."""
    settings = [f"forget_bias={forget_bias:g}", *more]
    return f"{name}[{','.join([*settings, NEEDED[name]] if name in NEEDED else settings)}]"


def model_and_inputs(pattern: str, form: str, **settings: Any) -> tuple[Backbone, Tensor]:
    """A fresh model for `mqar quick`, and the task's inputs."""
    given = {f"model.{setting}": value for setting, value in settings.items()}
    cell = plan("mqar/quick", [pattern], form=form, device="cpu", settings=given)[0]
    batch = cell.task.sample(torch.arange(4), seed=0, split="train")
    return cell.model.build(cell.task, seed=0), batch.inputs


@torch.no_grad()
def starting_decays(pattern: str, form: str) -> list[Tensor]:
    """Logarithms of the decays of each layer of a fresh model, for each token of the task once.

    Silent layers all read the embedded inputs. In the task itself half of all tokens are one filler.
    """
    model, inputs = model_and_inputs(pattern, form)
    x = model.embedding(inputs.unique()[None])
    return [
        LOG_DECAYS[mixer.name](mixer, norm(x))
        for mixer, norm in zip(model.mixers, model.mixer_norms, strict=True)
    ]


@torch.no_grad()
def half_lives(name: str) -> list[list[float]]:
    """Tokens after which half is left, in both of two layers of a variant as published, where W x = 0.

    For each layer the 10 % of its gates that forget soonest, the median, and the 10 % that forget last.
    """
    pattern = f"{name}[{NEEDED[name]}]" if name in NEEDED else name
    heads = {"heads": HEADS} if "heads" in MIXERS[name].Settings.model_fields else {}
    model, _ = model_and_inputs(pattern, "native", d_model=8 * HEADS, **heads)
    nothing = torch.zeros(1, 1, 8 * HEADS)
    shares = torch.tensor([0.1, 0.5, 0.9])
    return [
        (math.log(0.5) / LOG_DECAYS[name](mixer, nothing)).flatten().quantile(shares).tolist()
        for mixer in model.mixers
    ]


HEADS = 64
"""Heads of the models whose half-lives are shown: enough for a distribution."""


def table() -> str:
    """Return the table of half-lives in docs/initial-values.md."""

    def three(values: list[float]) -> str:
        first, median, last = (f"{value:.2g}" if value < 100 else f"{value:.0f}" for value in values)
        return median if first == last else f"{median} ({first} to {last})"

    rows = [f"| `{name}` | {' | '.join(map(three, half_lives(name)))} |" for name in LOG_DECAYS]
    return "\n".join(["| variant | first layer | second of two |", "|---|---|---|", *rows]) + "\n"
