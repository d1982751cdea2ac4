"""Rows of measurements as words."""

from collections.abc import Callable
from typing import Any

from linbench.benchmark.shapes import written
from linbench.speeds import OURS

LEFT = ("operation", "shape", "reason")
Row = dict[str, Any]


def columns(rows: list[Row], peer: str | None) -> tuple[list[str], list[list[str]]]:
    """The names of the columns that have anything to say, and a row of words for each of `rows`."""

    def side(name: str | None, key: str, words: Callable[[float], str]) -> Callable[[Row], str]:
        return lambda row: _words(row.get("sides", {}).get(name, {}).get(key), words)

    def of(group: str, key: str, words: Callable[[float], str]) -> Callable[[Row], str]:
        return lambda row: _words(row.get(group, {}).get(key), words)

    def reason(row: Row) -> str:
        of_sides = [f"{name} {found['reason']}" for name, found in row.get("sides", {}).items() if "reason" in found]
        return "; ".join([row["reason"]] if row["reason"] else of_sides)

    every: dict[str, Callable[[Row], str]] = {
        "operation": lambda row: row["operation"],
        "shape": lambda row: written(row["shape"]),
        "forward": side(OURS, "forward", _ms),
        "fwd+bwd": side(OURS, "both", _ms),
        "of a call": of("shares", "call", _percent),
        "device fwd": side(OURS, "device_forward", _ms),
        "device fwd+bwd": side(OURS, "device_both", _ms),
        "of bytes": of("shares", "bytes", _percent),
        "of arithmetic": of("shares", "flops", _percent),
        "peak MiB": side(OURS, "peak_bytes", _mib),
        "first call s": lambda row: _words(row.get("first_call"), lambda seconds: f"{seconds:.1f}"),
        f"{peer} fwd+bwd": side(peer, "both", _ms),
        "x": of("ratios", "both", _ratio),
        f"{peer} device": side(peer, "device_both", _ms),
        "x device": of("ratios", "device_both", _ratio),
        f"{peer} peak MiB": side(peer, "peak_bytes", _mib),
        "error": side(OURS, "error", _error),
        f"{peer} error": side(peer, "error", _error),
        "gradients": side(OURS, "gradient_error", _error),
        f"{peer} gradients": side(peer, "gradient_error", _error),
        "reason": reason,
    }
    kept = {name: words for name, words in every.items() if any(words(row) not in ("", "–") for row in rows)}
    return list(kept), [[words(row) for words in kept.values()] for row in rows]


TRAIN_LEFT = ("model", "shape", "reason")


def train_columns(rows: list[Row], peer: str | None) -> tuple[list[str], list[list[str]]]:
    """As `columns`, for training steps."""

    def side(name: str | None, key: str, words: Callable[[float], str]) -> Callable[[Row], str]:
        return lambda row: _words(row.get(key, {}).get(name), words)

    every: dict[str, Callable[[Row], str]] = {
        "model": lambda row: row["model"],
        "shape": lambda row: written(row["shape"]),
        "replicas": lambda row: str(row["replicas"]),
        "dtype": lambda row: row["precision"],
        "step ms": side(OURS, "seconds", _ms),
        "M tokens/s": side(OURS, "tokens_per_second", _millions),
        "peak MiB": lambda row: _words(row.get("peak_bytes"), _mib),
        f"{peer} ms": side(peer, "seconds", _ms),
        f"{peer} M tokens/s": side(peer, "tokens_per_second", _millions),
        "x": lambda row: _words(row.get("ratio"), _ratio),
        "reason": lambda row: "; ".join(filter(None, (row["reason"], row.get("note")))),
    }
    kept = {name: words for name, words in every.items() if any(words(row) not in ("", "–") for row in rows)}
    return list(kept), [[words(row) for words in kept.values()] for row in rows]


def parts_table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Microseconds of a step by kind of work, a row for each."""
    measured = [row for row in rows if row.get("parts")]
    kinds = list(dict.fromkeys(kind for row in measured for kind in row["parts"]))
    names = ["model", "shape", "replicas", *kinds, "in all"]
    shown = [
        [row["model"], written(row["shape"]), str(row["replicas"]), *(_words(row["parts"].get(kind), _us) for kind in kinds), _us(sum(row["parts"].values()))]
        for row in measured
    ]
    return names, shown


def sentences(found: dict[str, Any]) -> list[str]:
    """What stands under the table."""
    words = {"both": "as called", "device_both": "on the device", "peak_bytes": "in peak memory"}
    lines = []
    for line in found["summary"]:
        what, mean, least = words[line["what"]], f"{line['geometric_mean']:.2f}", f"{line['least']:.2f} ({line['least_of']})"
        lines.append(f"{line['shape']}, {line['peer']} / ours {what}: geometric mean {mean}, least {least}.")
    best = found["ceilings"]
    ceilings = f"Times in ms. Copy {best['bytes_per_second'] / 1e9:,.0f} GB/s, matrix product {best['flops_per_second'] / 1e12:,.2f} TFLOP/s."
    return [*lines, ceilings, *found["notes"]]


def _words(value: float | None, words: Callable[[float], str]) -> str:
    return "–" if value is None else words(value)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:#.3g}"


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:,.0f}"


def _millions(number: float) -> str:
    return f"{number / 1e6:#.3g}"


def _percent(share: float) -> str:
    return f"{share:.0%}" if share else "–"


def _mib(size: float) -> str:
    return f"{size / 2**20:,.0f}"


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}"


def _error(error: float) -> str:
    return f"{error:.1e}"
