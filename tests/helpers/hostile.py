"""Texts that an attacker would write into a result, and the fields that they get in by."""

from collections.abc import Callable, Sequence
from typing import Any

from linbench.results.schema import Result

TEXTS = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</td></tr></table><h1>owned</h1><!--",
    "[click](https://evil.example/x)",
    "![seen](https://evil.example/x.png)",
    "<https://evil.example> www.evil.example mailto:a@evil.example",
    "@everyone @org/team #1 GH-2 org/repo#3",
    "# heading",
    "one\n# two\n\n- three\n```\nfour",
    "| a | b\\| c \\\\| d |",
    "`code` ``` **bold** _em_ ~~gone~~",
    "&#64;everyone &lt;b&gt; &amp;",
    "\x1b[31mred\x1b]0;title\x07\x1b]8;;https://evil.example\x1b\\",
    "\x9b31m\x85\x90q\x9c\x7f\x00",
    "left\u202eright\u2066\u200b\u2028end",
    '=HYPERLINK("https://evil.example","x")',
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "\\input{/etc/passwd}\\write18{id}%\n\\end{document}",
    "$\\frac{1}{0}$ ${x}$ [red]x[/red] {{ 7*7 }} {% raw %}",
    "../../.bashrc /etc/passwd [ ] 1. x\r\n::error::x ' onload='x \ud800",
)


def _set(*path: str) -> Callable[[Result, str], None]:
    def put(result: Result, text: str) -> None:
        place: Any = result
        for name in path[:-1]:
            place = place[int(name) if name.isdigit() else name]
        place[int(path[-1]) if path[-1].isdigit() else path[-1]] = text

    return put


def _renamed(name: str, *path: str) -> Callable[[Result, str], None]:
    def put(result: Result, text: str) -> None:
        place: Any = result
        for part in path:
            place = place[int(part) if part.isdigit() else part]
        place[text] = place.pop(name)

    return put


FIELDS: dict[str, Callable[[Result, str], None]] = {
    "label": _set("label"),
    "preset": _set("preset"),
    "reason": _set("reason"),
    "mark": lambda result, text: result["marks"].append(text),
    "note": _set("stack", "note"),
    "metric": lambda result, text: result["metrics"].update({text: 0.5}),
    "slice": _renamed("distance", "slices"),
    "device": _set("cell", "device"),
    "task": _set("cell", "task", "name"),
    "source of the task": _set("cell", "task", "source"),
    "name of a setting of the task": _renamed("kv_pairs", "cell", "task", "settings"),
    "setting of the task": _set("cell", "task", "settings", "kv_pairs"),
    "name of a setting of the protocol": _renamed("spare", "cell", "protocol", "settings"),
    "precision": _set("cell", "protocol", "settings", "precision"),
    "mixer": _set("cell", "model", "layers", "0", "mixer"),
    "source of the mixer": _set("cell", "model", "layers", "0", "source"),
    "name of a setting of the mixer": _renamed("conv", "cell", "model", "layers", "0", "settings"),
    "setting of the mixer": _set("cell", "model", "layers", "0", "settings", "conv"),
    "setting of the backbone": _set("cell", "model", "backbone", "settings", "norm"),
    "commit": _set("environment", "commit"),
    "python": _set("environment", "python"),
    "platform": _set("environment", "platform"),
    "package": lambda result, text: result["environment"]["packages"].update({text: "1"}),
    "version of a package": _set("environment", "packages", "linbench"),
    "name of the device": _set("environment", "device", "name"),
}
"""All that hold text and leave a result one that is shown."""


def _tested(result: Result, text: str) -> None:
    result["cell"]["task"]["test"] = [{"settings": {"kv_pairs": text}}, {"settings": {text: 8}}]
    result["tests"] = [{"settings": {}, "chance": 0.1, "metrics": {"accuracy": 0.5}, "slices": {}}] * 2


ALONE: dict[str, Callable[[Result, str], None]] = {
    "status": _set("status"),
    "form": _set("cell", "model", "form"),
    "test": _tested,
}
"""Others that hold text."""


def results(make: Callable[..., Result], text: str, *fields: str) -> list[Result]:
    """Two models with two seeds, one with the text in these fields, and one of its runs failed with it for a
    reason; all fields if none is named."""
    return [*_model(make, "deltanet"), *_model(make, "hostile", text, fields or tuple(FIELDS))]


def results_of_all(make: Callable[..., Result], *fields: str, texts: Sequence[str] = TEXTS) -> list[Result]:
    """A model as it should be, and one for each text that has it in these fields, all together."""
    found = _model(make, "deltanet")
    for place, text in enumerate(texts):
        found += _model(make, f"hostile {place}", text, fields)
    return found


def _model(
    make: Callable[..., Result], label: str, text: str = "", fields: Sequence[str] = ()
) -> list[Result]:
    found = []
    for seed in (0, 1):
        curve = [
            {"step": i, "tokens": 100 * i, "accuracy": 0.1 * i, "loss": 1.0, "nll": 1.0} for i in (1, 2, 3)
        ]
        slices = {"distance": {"at": [1, 2, 9], "accuracy": {"sum": [3, 1, 0], "weight": [3, 3, 3]}}}
        result = make(
            label, seed, 0.5 + 0.1 * seed, curve=curve, slices=slices, around={"norm": "rms"}, marks=[]
        )
        result["cell"]["protocol"]["settings"]["spare"] = 1
        result["environment"] |= {"python": "3.11", "platform": "linux", "device": {"name": "a device"}}
        for field in fields:
            (FIELDS | ALONE)[field](result, text)
        if seed and "reason" in fields:
            result |= {"status": "failed", "metrics": {}}
        found.append(result)
    return found
