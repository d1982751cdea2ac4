"""Sentences of docs/speed.md, computed from its tables and from stored speeds."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import pandas as pd
import torch
from scipy.stats import gmean

from linbench.results.speed_labels import AS_CALLED, OURS, REPLAYED
from linbench.results.store import OPERATION, SPEED
from tests.bench.speed_page import TABLES, growth, layers, of_commit, rate, stored
from tests.pages.fact import Fact, ends, short

PAGE = "docs/speed.md"
KERNELS = ("kernels-256", "kernels-256-h200", "kernels-4096", "kernels-65536")
BESIDE = ("beside-128", "beside-2048", "beside-2048-h100")
GROWING = ("attention", "fox", "lstm")
"""Layers that are not linear in the length, or go token by token."""


@cache
def shown(name: str) -> pd.DataFrame:
    """Return a table of the page as text, a row for each label; a second column of a name gets a 2."""
    head, _, *rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")] for line in TABLES[name]().splitlines()
    ]
    columns = [f"{one} 2" if one in head[:i] else one for i, one in enumerate(head)]
    return pd.DataFrame(rows, columns=columns).set_index(columns[0])


def numbers(name: str, column: str) -> "pd.Series[float]":
    """Return a column of a table as numbers, without rows that have none."""
    text = shown(name)[column].str.replace(r"[,% ]", "", regex=True)
    return pd.to_numeric(text[text != "–"])


def of_all(names: Sequence[str], *columns: str) -> list[float]:
    """Return the numbers of some columns of some tables."""
    return [value for name in names for column in columns for value in numbers(name, column)]


def lost_by_16384() -> float:
    """Return the largest share of its speed that a linear layer loses from 256 to 16,384 tokens."""
    return max(
        (1 - numbers(name, "16,384") / numbers(name, "256")).max()
        for name in ("lengths-h200", "lengths-h100")
    )


def attention_grows() -> list[str]:
    seconds = {
        result["bench"]["shape"]["length"]: result["bench"]["shape"]["length"] / rate(result)
        for result in layers("h200", "eed9121a", "train", 1024)
        if result["label"] == "attention"
    }
    return [growth(seconds)]


def recurrences_h200() -> list[dict[str, Any]]:
    """Return the stored timings of `kernels-256-h200`."""
    return of_commit("h200", OPERATION, "0e0bf288")


def operations_h200(side: str, *path: str) -> list[float]:
    found = []
    for result in recurrences_h200():
        value: Any = result["sides"][side]
        for name in path:
            value = value[name]
        found.append(float(value))
    return found


def errors() -> list[str]:
    return [
        scientific(end(operations_h200(side, of)))
        for of in ("error", "gradient_error")
        for side in (OURS, "fla")
        for end in (min, max)
    ]


def rounding() -> list[str]:
    """Return the relative error that rounding to bf16 makes of normally distributed numbers."""
    values = torch.randn(1 << 20, generator=torch.Generator().manual_seed(0))
    return [scientific(float((values.bfloat16().float() - values).norm() / values.norm()))]


def scientific(value: float) -> str:
    return f"{value:.1e}".replace("e-0", "e-")


def called() -> list[str]:
    bare = [1e3 * result["bare"]["median"] for result in recurrences_h200()]
    ours = [1e3 * value for value in operations_h200(OURS, "both", AS_CALLED, "median")]
    return [f"{end(values):.2f}" for values in (bare, ours) for end in (min, max)]


def memory_beside_fla() -> list[str]:
    return [
        f"{gmean([value for name in names for value in _memory(name)]):.2f}"
        for names in (("kernels-256", "kernels-256-h200"), ("kernels-4096", "kernels-65536"))
    ]


def _memory(name: str) -> list[float]:
    return list((numbers(name, "fla, MiB") / numbers(name, "MiB")).dropna())


def alone_beside_eight() -> "pd.Series[float]":
    """Return how many times as much a token costs in one long sequence as in eight."""
    return (numbers("kernels-65536", "both, ms") / numbers("kernels-4096", "both, ms") / 2)[
        ["deltanet", "gated_deltanet", "gla", "kda", "rwkv7"]
    ]


def alone() -> list[str]:
    cost = alone_beside_eight()
    assert (cost.idxmin(), cost.idxmax()) == ("deltanet", "gated_deltanet")
    return [f"{cost.min():.2f}", f"{cost.max():.2f}"]


def fox() -> list[str]:
    return [
        short(rate(one) / rate(one, side="fla"))
        for device, commit in (("h200", "6a4ad92"), ("h100", "1f996b8"))
        for question in ("train", "prefill")
        for one in layers(device, commit, question, 2048, "fla")
        if one["label"] == "fox"
    ]


def beside(name: str, other: str, columns: Sequence[str]) -> list[str]:
    """Return the least and the largest share of another layer's speed, at some lengths on an H200."""
    return ends([numbers("lengths-h200", at)[name] / numbers("lengths-h200", at)[other] for at in columns])


def fewer_after_65536() -> list[str]:
    long = numbers("decode-1024", "64 after 65,536")["attention"]
    return [f"{numbers('decode-1024', '64 after 256')['attention'] / long:.0f}"]


LENGTHS = ("256", "1,024", "4,096", "16,384", "65,536")


def one_token() -> list[str]:
    """Return the least and the largest milliseconds of a token as called, and the shares of the device."""
    chosen = [
        result["sides"][OURS]
        for result in layers("h200", "0278fdba", "decode", 2048)
        if (result["bench"]["shape"]["batch"], result["bench"]["shape"]["length"]) == (1, 4096)
    ]
    host = [1e3 * side[AS_CALLED]["median"] for side in chosen]
    device = [100 * side[REPLAYED]["median"] / side[AS_CALLED]["median"] for side in chosen]
    return [*ends(host), f"{min(device):.0f}", f"{max(device):.0f}"]


def spread_on_a_cpu() -> list[str]:
    sides = [one["sides"][OURS][AS_CALLED] for one in layers("cpu", "22d8a981", "decode", 64)]
    return [f"{100 * max((one['high'] - one['low']) / 2 / one['median'] for one in sides):.0f}"]


def cpu_peer(peer: str, question: str) -> list[str]:
    ratios = [
        rate(one, AS_CALLED) / rate(one, AS_CALLED, peer)
        for one in stored("cpu", SPEED)
        if (one["bench"]["peer"] or {}).get("name") == peer and one["bench"]["question"] == question
    ]
    return ends(ratios)


def roofline(name: str, column: str, least: float) -> list[str]:
    """Return how many rows of a table reach at least a percentage, and of how many."""
    found = numbers(name, column)
    return [str(int((found >= least).sum())), str(len(found))]


def short_kernels() -> list[str]:
    share = numbers("kernels-256", "of bytes")[list(numbers("kernels-256", "ratio").index)]
    others = share.drop(["linear_attention", "scalar_decay"])
    return [
        f"{one:.0f}" for one in (share["linear_attention"], share["scalar_decay"], others.min(), others.max())
    ]


def narrow_steps() -> list[str]:
    narrow = shown("steps-h100")["shape"].str.endswith(" D64")
    milliseconds = numbers("steps-h100", "ms")[narrow]
    return [f"{milliseconds.min():.2f}", f"{milliseconds.max():.2f}"]


def one_step() -> list[str]:
    rows = shown("steps-h100").loc["gated_deltanet"]
    (row,) = rows[rows["shape"] == "B512 T64 D64"].to_dict("records")
    return [row["ms"], row["M tokens/s"]]


def cell(name: str, label: str, *columns: str) -> list[str]:
    """Return what some columns of a row show."""
    return [str(shown(name).loc[label, column]) for column in columns]


FACTS = [
    Fact(
        PAGE,
        "**Kernels** of sums, decays and delta rules are {} to {} times as fast as flash-linear-attention"
        " 0.6.0 on the device, forward and backward, and {} to {} times as fast as called from Python.",
        lambda: [*ends(of_all(KERNELS, "ratio")), *ends(of_all(KERNELS, "as called"))],
    ),
    Fact(
        PAGE,
        "**Layers** train {} to {} times as fast as fla's",
        lambda: ends(of_all(BESIDE, "ratio")),
    ),
    Fact(PAGE, "Prompts are {} to {} times as fast.", lambda: ends(of_all(BESIDE, "ratio 2"))),
    Fact(PAGE, "linear layers lose at most {} % of their speed", lambda: [f"{100 * lost_by_16384():.0f}"]),
    Fact(PAGE, "The time of softmax attention grows as T^{}", attention_grows),
    Fact(
        PAGE,
        "softmax attention gives {} times fewer tokens",
        fewer_after_65536,
    ),
    Fact(PAGE, "(32,768 tokens, width 64, two layers) takes {} to {} ms", narrow_steps),
    Fact(
        PAGE,
        "forward and backward | {} ms, {} times as fast as fla | H100",
        lambda: cell("kernels-256", "gated_deltanet", "both, ms", "ratio"),
    ),
    Fact(
        PAGE,
        "B8 T4096 H16 D128 | {} ms, {} times as fast as fla | H100",
        lambda: cell("kernels-4096", "gated_deltanet", "both, ms", "ratio"),
    ),
    Fact(
        PAGE,
        "width 128, 256 tokens | {} M tokens/s",
        lambda: cell("layers-128", "gated_deltanet", "training"),
    ),
    Fact(
        PAGE,
        "width 2048, 4,096 tokens | {} M tokens/s, {} times as fast as fla",
        lambda: cell("beside-2048", "gated_deltanet", "training", "ratio"),
    ),
    Fact(
        PAGE,
        "width 2048 | {} thousand tokens/s",
        lambda: cell("decode-2048", "gated_deltanet", "64 after 4,096"),
    ),
    Fact(PAGE, "B512 T64 D64 | {} ms, {} M tokens/s", one_step),
    Fact(
        PAGE,
        "width 64, 256 tokens | {} thousand tokens/s",
        lambda: cell("lengths-cpu", "gated_deltanet", "256"),
    ),
    Fact(
        PAGE,
        "fla takes {} times as much in the short shapes and {} times in the long ones",
        memory_beside_fla,
    ),
    Fact(
        PAGE,
        "outputs {} to {} (fla {} to {}), the worst gradient {} to {} (fla {} to {})",
        errors,
    ),
    Fact(PAGE, "Rounding to bf16 alone makes {}.", rounding),
    Fact(
        PAGE,
        "an autograd function that computes nothing took {} to {} ms, and a whole call of linbench's {} to {}"
        " ms",
        called,
    ),
    Fact(PAGE, "a token costs {} (DeltaNet) to {} times (Gated DeltaNet) as much", alone),
    Fact(
        PAGE,
        "FoX trains {} times as fast as fla's on an H200 and takes prompts at {} of its speed (commit"
        " 6a4ad92, one run); on an H100 {} and {} (1f996b8).",
        fox,
    ),
    Fact(
        PAGE,
        "trains at {} to {} of the speed of Gated DeltaNet, whose layer is built alike.",
        lambda: beside("deltaproduct", "gated_deltanet", LENGTHS),
    ),
    Fact(
        PAGE,
        "trains at {} to {} of the speed of GLA",
        lambda: beside("gated_deltanet", "gla", LENGTHS[:-1]),
    ),
    Fact(
        PAGE,
        "at width 2048 a token alone takes {} (linear attention) to {} ms (RWKV-7), of which the device works"
        " {} to {} %.",
        one_token,
    ),
    Fact(PAGE, "half of what lies between the fifths is up to {} % of the median", spread_on_a_cpu),
    Fact(
        PAGE,
        "Gated DeltaNet trains {} to {} times as fast and decodes at {} to {} of its speed",
        lambda: [*cpu_peer("transformers", "train"), *cpu_peer("transformers", "decode")],
    ),
    Fact(PAGE, "attention trains at {} to {} of its speed.", lambda: cpu_peer("sdpa", "train")),
    Fact(
        PAGE,
        "Linear attention comes to {} % of the memory roofline on an H100, a scalar decay to {} %, all other"
        " recurrences to {} to {} %.",
        short_kernels,
    ),
    Fact(
        PAGE,
        "No layer comes to more than {} % of the roofline in training",
        lambda: [f"{numbers('layers-128', 'roofline').max():.0f}"],
    ),
    Fact(
        PAGE,
        "as called they reach {} to {} of their speed on the device",
        lambda: ends(list(numbers("layers-128", "training as called") / numbers("layers-128", "training"))),
    ),
    Fact(
        PAGE,
        "{} of {} layers reach 40 % of the roofline or more",
        lambda: roofline("layers-2048", "roofline", 40),
    ),
    Fact(
        PAGE,
        "{} of {} layers reach 33 % of the roofline or more",
        lambda: roofline("decode-2048", "roofline", 33),
    ),
]
