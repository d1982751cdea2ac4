"""Stored speeds of kernels, whole training steps and the drawing of examples: which of them may stand side by
side."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from linbench.common.files import file_name
from linbench.results.record import Result
from linbench.results.speed_labels import OURS
from linbench.results.speeds import current, machine
from linbench.results.store import DRAW, OPERATION, STEP


class Bench(NamedTuple):
    """Results of one kind that may stand in one table, a row for each; what they are of, where, and a name
    for files."""

    kind: str
    about: str
    slug: str
    results: tuple[Result, ...]

    @property
    def peers(self) -> list[str]:
        """That any stands beside."""
        return list(
            dict.fromkeys(side for result in self.results for side in result["sides"] if side != OURS)
        )


def benches(results: Iterable[Result], kind: str) -> list[Bench]:
    """Those of a kind, by name. Of what was asked again, alone or beside a peer, that which is `current`."""
    groups: dict[str, dict[str, list[Result]]] = {}
    for result in (one for one in results if one["kind"] == kind):
        groups.setdefault(_ABOUT[kind](result), {}).setdefault(_ROW[kind](result), []).append(result)
    found = []
    for about, rows in sorted(groups.items()):
        slug = file_name(f"{NAMES[kind]} {about}")
        found.append(Bench(kind, about, slug, tuple(sorted(map(current, rows.values()), key=_order))))
    return found


def _order(result: Result) -> tuple[str, int, int]:
    bench = result["bench"]
    return result["label"], bench.get("seq_len", 0), bench.get("replicas", 0)


NAMES = {OPERATION: "kernels", STEP: "steps", DRAW: "draws"}
"""Of the figures that are drawn of them."""


def shape_of(result: Result) -> str:
    """B256xT256xH2xD64."""
    shape = result["bench"]["shape"]
    return "x".join(f"{name}{shape[name]}" for name in "BTHD" if name in shape)


_ABOUT: dict[str, Callable[[Result], str]] = {
    OPERATION: lambda one: f"{shape_of(one)}, {one['bench']['precision']}, {machine(one)}",
    STEP: lambda one: f"{shape_of(one)}, {one['bench']['precision']}, {machine(one)}",
    DRAW: lambda one: (
        f"{one['environment']['device']['name']}"
        + (", one thread" if one["bench"]["device"] == "cpu" else "")
    ),
}
_ROW: dict[str, Callable[[Result], str]] = {
    OPERATION: lambda one: str(one["label"]),
    STEP: lambda one: f"{one['label']} {one['bench']['model']} {one['bench']['replicas']}",
    DRAW: lambda one: str(one["label"]),
}


def seconds_of(result: Result, side: str, *path: str) -> Mapping[str, float] | None:
    """A median with its fifths; None where nothing was timed."""
    found = result["sides"].get(side, {})
    for name in path:
        found = found.get(name) or {}
    return found or None


def tokens_of(result: Result) -> int:
    """Of a call, of a step of all replicas, or of an example."""
    bench = result["bench"]
    return int(
        bench["seq_len"]
        if result["kind"] == DRAW
        else bench["shape"]["B"] * bench["shape"]["T"] * bench.get("replicas", 1)
    )


def notes(result: Result) -> str:
    """What went wrong or was in doubt, of ours and of a peer's."""
    said = [*result["marks"]] if result["status"] == "ok" else [f"{result['status']}: {result['reason']}"]
    for side, found in result["sides"].items():
        said += [
            found[name] if side == OURS else f"{side}: {found[name]}"
            for name in ("reason", "note")
            if found.get(name)
        ]
    return "; ".join(said)
