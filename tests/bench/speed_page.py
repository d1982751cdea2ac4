"""The tables of docs/speed.md that stored results make.

`python -m tests.pages.blocks` writes them anew below their marks.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import chain
from math import log
from pathlib import Path
from typing import Any

import numpy as np

from linbench.results.kernel_changes import newest_versions, older_reason, outdated_reason
from linbench.results.speed_labels import AS_CALLED, OURS, REPLAYED
from linbench.results.store import DRAW, OPERATION, SPEED, STEP, SWEEP, Store

ROOT = Path(__file__).parents[2]
MIB, KIB = 1 << 20, 1 << 10

Row = list[str]


@cache
def stored(device: str, kind: str) -> list[dict[str, Any]]:
    """Return the stored results of a kind, without those of kernels that have changed since."""
    by_kind = Store(ROOT / "results" / device).by_kind()
    newest = newest_versions(chain(by_kind[SPEED], by_kind[OPERATION], by_kind[STEP]))
    return [
        result
        for result in by_kind[kind]
        if not older_reason(result, newest) and not (kind == SPEED and outdated_reason(result))
    ]


def of_commit(device: str, kind: str, commit: str) -> list[dict[str, Any]]:
    return [each for each in stored(device, kind) if each["environment"]["commit"].startswith(commit)]


def number(value: float | None) -> str:
    """Return three digits; as many as there are before the point for large numbers."""
    if not value:
        return "–"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - int(np.floor(np.log10(value))))}f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


def layers(
    device: str, commit: str, question: str, width: int, peer: str | None = None, *, forms: bool = False
) -> list[dict[str, Any]]:
    """Return results of layers by one commit, with a peer or without one; forms: of `bench forms`."""
    chosen = []
    for result in stored(device, SPEED):
        bench = result["bench"]
        if (
            result["status"] == "ok"
            and result["environment"]["commit"].startswith(commit)
            and (bench["question"], bench["layer"]["d_model"]) == (question, width)
            and bench["layer"]["form"] == "native"
            and (bench["peer"] or {}).get("name") == peer
            and (bench["backend"] != "auto") == forms
        ):
            chosen.append(result)
    return chosen


def rate(result: dict[str, Any], how: str = REPLAYED, side: str = OURS, scale: float = 1e6) -> float:
    """Return tokens per second over `scale`; 0 if it was not timed this way."""
    seconds = result["sides"][side].get(how)
    shape = result["bench"]["shape"]
    tokens = shape["batch"] * (1 if result["bench"]["question"] == "decode" else shape["length"])
    return 0.0 if seconds is None else float(tokens / seconds["median"] / scale)


def roofline(result: dict[str, Any]) -> str:
    """Return the least time by the device's peaks in that run, over the time that was measured."""
    cost, peaks = result["cost"], result["ceilings"]
    least = max(
        (cost["flops"] or 0) / peaks["flops_per_second"], (cost["bytes"] or 0) / peaks["bytes_per_second"]
    )
    return f"{100 * least / result['sides'][OURS][REPLAYED]['median']:.0f} %"


def by_label(results: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {result["label"]: result for result in results}


def kernels(
    device: str, commit: str | tuple[str, ...], shape: dict[str, int] | None, peer: str = "fla"
) -> str:
    """Return the table of kernels at a shape; without one that of a single kernel, a row for each shape."""
    rows = []
    for result in stored(device, OPERATION):
        of, same = result["bench"]["shape"], result["environment"]["commit"].startswith(commit)
        if (
            not same
            or shape not in (None, of)
            or result["status"] != "ok"
            or not result["sides"].keys() <= {OURS, peer}
        ):
            continue
        ours, theirs = result["sides"][OURS], result["sides"].get(peer, {})
        forward = ours["forward"].get(REPLAYED, {}).get("median")
        mine, other = (side.get("both", {}).get(REPLAYED, {}).get("median") for side in (ours, theirs))
        called = theirs.get("both", {}).get(AS_CALLED, {}).get("median")
        peaks, cost = result["ceilings"], result["cost"]
        rows.append(
            [
                f"`{result['label']}`" if shape else " ".join(f"{side}{of[side]}" for side in "BTHD"),
                number(forward and 1e3 * forward),
                number(mine and 1e3 * mine),
                number(other and 1e3 * other),
                number(other and mine and other / mine),
                number(called and called / ours["both"][AS_CALLED]["median"]),
                f"{100 * cost['bytes'] / peaks['bytes_per_second'] / mine:.0f} %" if mine else number(None),
                number(ours["peak_bytes"] / MIB),
                number(theirs["peak_bytes"] / MIB if theirs else None),
            ]
        )
    head = [
        "operation" if shape else "shape",
        "forward, ms",
        "both, ms",
        f"{peer}, ms",
        "ratio",
        "as called",
        "of bytes",
        "MiB",
        f"{peer}, MiB",
    ]
    return table(head, sorted(rows, key=lambda row: float(row[2].replace(",", "").replace("–", "inf"))))


def steps(device: str, commit: str) -> str:
    rows = []
    for result in sorted(
        of_commit(device, STEP, commit), key=lambda r: (-r["bench"]["shape"]["B"], r["label"])
    ):
        shape, side = result["bench"]["shape"], result["sides"][OURS]
        seconds = side[AS_CALLED]["median"]
        memory = [number(side["peak_bytes"] / MIB)] if "peak_bytes" in side else []
        rows.append(
            [
                f"`{result['label']}`",
                f"B{shape['B']} T{shape['T']} D{shape['D']}",
                number(1e3 * seconds),
                number(shape["B"] * shape["T"] / seconds / 1e6),
                *memory,
            ]
        )
    head = ["model", "shape", "ms", "M tokens/s", *(["peak MiB"] if len(rows[0]) > 4 else [])]
    return table(head, rows)


def stacks(device: str, commit: str) -> str:
    """Millions of tokens per second of several models that train as one program, by width."""
    rates: dict[str, dict[tuple[int, int], float]] = {}
    for result in of_commit(device, STEP, commit):
        shape, count = result["bench"]["shape"], result["bench"]["replicas"]
        seconds = result["sides"][OURS][AS_CALLED]["median"]
        tokens = shape["B"] * shape["T"] * count
        rates.setdefault(result["label"], {})[shape["D"], count] = tokens / seconds / 1e6
    columns = sorted({column for of_label in rates.values() for column in of_label})
    order = sorted(rates, key=lambda label: -max(rates[label].values()))
    return table(
        ["model", *(f"width {width}, {count} models" for width, count in columns)],
        [[f"`{label}`", *(number(rates[label].get(column)) for column in columns)] for label in order],
    )


def sweeps(device: str, commit: str) -> str:
    """Whole suites by the number of workers: seconds, tokens, and where the time of workers goes."""
    rows = []
    for result in sorted(of_commit(device, SWEEP, commit), key=lambda r: r["bench"]["workers"]):
        spent, workers = result["spent"], result["bench"]["workers"]
        parts = [spent["parts"][name] for name in ("training", "evaluation", "first steps")]
        rows.append(
            [
                str(workers),
                number(spent["seconds"]),
                number(spent["tokens"] / spent["seconds"] / 1e6),
                *(f"{100 * part / spent['seconds'] / workers:.0f} %" for part in parts),
            ]
        )
    return table(["workers", "seconds", "M tokens/s", "training", "evaluation", "first steps"], rows)


def one_shape(device: str, commit: str, width: int) -> str:
    """Training and prompts at one length: rates, and how near they come to the roofline."""
    train, prompt, memory = (
        by_label(layers(device, commit, question, width)) for question in ("train", "prefill", "memory")
    )
    order = sorted(train, key=lambda label: -rate(train[label]))
    rows = [
        [
            f"`{label}`",
            number(rate(train[label])),
            roofline(train[label]),
            number(rate(prompt[label])),
            number(rate(train[label], AS_CALLED)),
            number(memory[label]["sides"][OURS]["peak_bytes"] / MIB),
            number(memory[label]["state"]["bytes"] / KIB),
        ]
        for label in order
        if rate(train[label])
    ]
    return table(
        ["layer", "training", "roofline", "prompts", "training as called", "MiB", "state, KiB"], rows
    )


def beside(device: str, commit: str, width: int, peer: str = "fla") -> str:
    """Training and prompts of one run, linbench's and a peer's in turn."""
    train, prompt = (by_label(layers(device, commit, q, width, peer)) for q in ("train", "prefill"))
    rows = []
    for label in sorted(train, key=lambda label: -rate(train[label])):
        row = [f"`{label}`"]
        for result in (train[label], prompt[label]):
            ours, theirs = rate(result), rate(result, side=peer)
            called = rate(result, AS_CALLED) / rate(result, AS_CALLED, peer)
            row += [number(ours), number(theirs), number(ours / theirs), number(called)]
        rows.append(row)
    head = ["layer", "training", peer, "ratio", "as called", "prompts", peer, "ratio", "as called"]
    return table(head, rows)


def growth(seconds_by_length: dict[int, float]) -> str:
    """Return e if the time of a sequence grows as T^e."""
    lengths = [log(length) for length in seconds_by_length]
    return f"{np.polyfit(lengths, [log(s) for s in seconds_by_length.values()], 1)[0]:.2f}"


def lengths(
    device: str,
    commit: str,
    width: int,
    how: str = REPLAYED,
    scale: float = 1e6,
    only: Sequence[str] = (),
) -> str:
    """Training at several lengths, and the exponent by which the time of a sequence grows."""
    train = layers(device, commit, "train", width)
    memory = layers(device, commit, "memory", width)
    columns = sorted({result["bench"]["shape"]["length"] for result in train})
    rows = []
    for label in {result["label"] for result in train if not only or result["label"] in only}:
        mine = {r["bench"]["shape"]["length"]: r for r in train if r["label"] == label}
        rates = {length: rate(mine[length], how, scale=scale) for length in columns if length in mine}
        times = {length: length / found for length, found in rates.items() if found}
        if len(times) < 2:
            continue
        peak = max(r["sides"][OURS]["peak_bytes"] for r in memory if r["label"] == label)
        rows.append(
            [
                f"`{label}`",
                *(number(rates.get(length)) for length in columns),
                growth(times),
                number(peak / MIB),
            ]
        )
    rows.sort(key=lambda row: -float(row[2].replace(",", "").replace("–", "0")))
    return table(["layer", *(f"{length:,}" for length in columns), "growth", "MiB"], rows)


def decoding(
    device: str,
    commit: str,
    width: int,
    many: int,
    how: str = REPLAYED,
    contexts: Sequence[int] = (),
    only: Sequence[str] = (),
) -> str:
    """One more token after one context or several: many sequences, and one."""
    results = layers(device, commit, "decode", width)
    contexts = contexts or sorted({result["bench"]["shape"]["length"] for result in results})
    rows = []
    for label in {result["label"] for result in results if not only or result["label"] in only}:
        found = {
            (r["bench"]["shape"]["batch"], r["bench"]["shape"]["length"]): r
            for r in results
            if r["label"] == label
        }
        if not all((batch, context) in found for batch in (1, many) for context in contexts):
            continue
        last = found[many, contexts[-1]]
        row = [f"`{label}`", *(number(rate(found[many, context], how, scale=1e3)) for context in contexts)]
        row += [roofline(last)] if how == REPLAYED else []
        row += [number(1e6 * found[1, context]["sides"][OURS][how]["median"]) for context in contexts]
        rows.append(row)
    rows.sort(key=lambda row: -float(row[1].replace(",", "")))
    after = [f"{many} after {context:,}" for context in contexts]
    alone = [f"one after {context:,}, µs" for context in contexts]
    return table(["layer", *after, *(["roofline"] if how == REPLAYED else []), *alone], rows)


def decoding_beside(device: str, commit: str, width: int, peer: str) -> str:
    """One more token beside a peer's, of one run: thousands of them per second, and ratios.

    On a GPU they are of the device alone, with the ratio as called beside.
    """
    rows, hows = [], (AS_CALLED,) if device == "cpu" else (REPLAYED, AS_CALLED)
    for result in layers(device, commit, "decode", width, peer=peer):
        shape, sides = result["bench"]["shape"], result["sides"]
        times = [(sides[OURS][how]["median"], sides[peer][how]["median"]) for how in hows]
        each = [number(shape["batch"] / seconds / 1e3) for seconds in times[0]]
        ratios = [number(theirs / ours) for ours, theirs in times]
        rows.append([f"`{result['label']}`", str(shape["batch"]), f"{shape['length']:,}", *each, *ratios])
    head = ["layer", "sequences", "after", "thousands/s", f"{peer}'s", "ratio", "as called"][: 5 + len(hows)]
    return table(head, sorted(rows, key=lambda row: (row[0], -int(row[1]), row[2])))


def forms(device: str, commit: str, width: int, how: str = REPLAYED) -> str:
    """Training of DeltaNet in every form, thousand tokens per second."""
    found: dict[tuple[int, int], dict[str, str]] = {}
    for result in layers(device, commit, "train", width, forms=True):
        bench = result["bench"]
        head = width // bench["layer"]["settings"]["heads"]
        row = found.setdefault((head, bench["shape"]["length"]), {})
        row[bench["backend"]] = number(rate(result, how, scale=1e3))
    names = {
        "reference": "token by token",
        "scan": "parallel scan",
        "chunkwise": "chunks in torch",
        "triton": "Triton",
    }
    used = [form for form in names if any(form in row for row in found.values())]
    rows = [
        [str(head), f"{length:,}", *(found[head, length].get(form, "–") for form in used)]
        for head, length in sorted(found)
    ]
    return table(["head dimension", "tokens", *(names[form] for form in used)], rows)


def draws(devices: dict[str, tuple[str, str]]) -> str:
    """The rates of drawing over all presets of all tasks."""
    rows = []
    for name, (device, how) in devices.items():
        rates = sorted(
            (r["bench"]["seq_len"] / r["sides"][OURS][how]["median"] / 1e6, r["label"])
            for r in stored(device, DRAW)
        )
        mqar = [rate for rate, label in rates if label.startswith("mqar/")]
        slowest, middle, fastest = rates[0], rates[len(rates) // 2], rates[-1]
        rows.append(
            [
                name,
                str(len(rates)),
                f"{number(slowest[0])} (`{slowest[1]}`)",
                number(middle[0]),
                f"{number(fastest[0])} (`{fastest[1]}`)",
                f"{number(mqar[0])} to {number(mqar[-1])}",
            ]
        )
    return table(["device", "presets", "slowest", "median", "fastest", "MQAR"], rows)


ON_A_CPU = (
    "attention",
    "fox",
    "lstm",
    "base_conv",
    "linear_attention",
    "gla",
    "mamba2",
    "deltanet",
    "gated_deltanet",
    "rwkv7",
)

TABLES: dict[str, Callable[[], str]] = {
    "steps-h100": lambda: steps("h100", "271b42c0"),
    "stacks-h200": lambda: stacks("h200", "f8e45c52"),
    "sweeps-h200": lambda: sweeps("h200", "bcd4e698"),
    "kernels-256": lambda: kernels("h100", "bd6bb50", {"B": 256, "T": 256, "H": 2, "D": 64}),
    "kernels-256-h200": lambda: kernels("h200", "0e0bf288", {"B": 256, "T": 256, "H": 2, "D": 64}),
    "kernels-4096": lambda: kernels("h100", "1f996b87", {"B": 8, "T": 4096, "H": 16, "D": 128}),
    "kernels-softmax-h200": lambda: kernels(
        "h200", ("9507259b", "ab14d429"), {"B": 8, "T": 4096, "H": 16, "D": 128}
    ),
    "kernels-attention-h200": lambda: kernels(
        "h200", "9507259b", {"B": 8, "T": 4096, "H": 16, "D": 128}, peer="sdpa"
    ),
    "kernels-qla-h200": lambda: kernels("h200", "8f523da6", None, peer="flash_qla"),
    "kernels-memories-h200": lambda: kernels("h200", "28063513", {"B": 8, "T": 4096, "H": 16, "D": 64}),
    "kernels-65536": lambda: kernels("h100", "1f996b87", {"B": 1, "T": 65536, "H": 16, "D": 128}),
    "layers-128": lambda: one_shape("h200", "cd54125a", 128),
    "layers-2048": lambda: one_shape("h200", "0278fdba", 2048),
    "beside-128": lambda: beside("h200", "16c5a604", 128),
    "beside-2048": lambda: beside("h200", "63c8d0f7", 2048),
    "beside-2048-h100": lambda: beside("h100", "271b42c0", 2048),
    "decode-2048": lambda: decoding("h200", "0278fdba", 2048, 64),
    "decode-beside-cpu": lambda: decoding_beside("cpu", "30b70b20", 2048, "sdpa"),
    "decode-beside": lambda: decoding_beside("h200", "792a6f52", 2048, "sdpa"),
    "decode-1024": lambda: decoding("h200", "b9dbdfb6", 1024, 64, contexts=[256, 4096, 65536]),
    "lengths-h200": lambda: lengths("h200", "63c8d0f7", 1024),
    "lengths-h100": lambda: lengths("h100", "e8c1378e", 1024),
    "forms-h100": lambda: forms("h100", "aaa82a1f", 512),
    "lengths-cpu": lambda: lengths("cpu", "b6de4ded", 64, AS_CALLED, 1e3, ON_A_CPU),
    "decode-cpu": lambda: decoding("cpu", "22d8a981", 64, 32, AS_CALLED, [64, 1024], ON_A_CPU),
    "steps-cpu": lambda: steps("cpu", "a92e8956"),
    "draws": lambda: draws(
        {
            "H100, blocks as training draws them": ("h100", REPLAYED),
            "one thread of an AMD EPYC": ("cpu", AS_CALLED),
        }
    ),
}
