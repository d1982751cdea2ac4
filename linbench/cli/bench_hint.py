"""What to type to measure the layers of a comparison of which no speed is stored."""

from shlex import join

from linbench.bench.presets import shaped, usual
from linbench.report.style.wording import TITLES
from linbench.results.layer_speeds import ASKED, Way
from linbench.results.side_by_side import Line, SideBySide

VERBS = {"train": "length", "decode": "decode"}
"""By question, the verb that asks it."""


def unmeasured(found: SideBySide, *, suite: str, results: str) -> list[str]:
    """How to have the speeds beside a comparison on a suite that are not stored: a sentence for each
    question. results: the folder to keep them in."""
    told = []
    for question in ASKED:
        if lines := found.unmeasured(question):
            names = ", ".join(dict.fromkeys(line.row.label for line in lines))
            devices = dict.fromkeys(
                way.speeds.device for line in lines if (way := found.way(line, question)) is not None
            )
            where = f" on {', '.join(devices)}, where others were," if devices else ""
            together: dict[str, list[str]] = {}
            for line in lines:
                together.setdefault(join(_shape(question, line, found.way(line, question))), []).append(
                    line.row.results[0]["label"]
                )
            of = ["--suite", suite, "--form", found.form, "--results", results]
            how = [
                f"{join(['linbench', 'bench', VERBS[question], '--models', _names(models), *of])} {shape}"
                for shape, models in together.items()
            ]
            told.append(
                f"the speed of {TITLES[question].lower()} is not stored for {names}; measured{where} by:"
                f" {'; '.join(how)}"
            )
    return told


def _names(models: list[str]) -> str:
    return ",".join(dict.fromkeys(models))


def _shape(question: str, line: Line, way: Way | None) -> list[str]:
    """The way in which others were measured, else the length that was tested where a batch holds it."""
    cell = line.row.results[0]["cell"]
    device = ["--device", "cpu"] if cell["device"] == "cpu" else []
    if way is not None:
        bench = next(iter(way.results.values()))["bench"]
        batch, length = bench["shape"]["batch"], bench["shape"]["length"]
        many = ["--batch", str(batch)] if question == "decode" else ["--tokens", str(batch * length)]
        return ["--lengths", str(length), *many, "--dtype", bench["precision"], *device]
    length = cell["task"]["settings"].get("seq_len")
    return [
        *(
            []
            if length is None or length > shaped(usual(cell["device"])).tokens
            else ["--lengths", str(length)]
        ),
        *device,
    ]
