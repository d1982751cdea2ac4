"""Commands that would measure the speeds that a comparison lacks."""

from shlex import join

from linbench.bench.presets import default_preset, resolve_preset
from linbench.report.style.wording import TITLES
from linbench.results.layer_speeds import QUESTIONS, SpeedSelection
from linbench.results.side_by_side import ComparisonRow, VariantComparison

VERBS = {"train": "length", "decode": "decode"}
"""The verb of `linbench bench` that measures each question."""


def unmeasured(comparison: VariantComparison, *, suite: str, results: str) -> list[str]:
    """Return, for each question, a sentence with the commands that measure what is missing.

    Args:
        found: a comparison of variants on a suite.
        results: folder that the commands write to.
    """
    sentences = []
    for question in QUESTIONS:
        if lines := comparison.unmeasured(question):
            sentences.append(_sentence(comparison, question, lines, suite=suite, results=results))
    return sentences


def _sentence(
    comparison: VariantComparison, question: str, lines: list[ComparisonRow], *, suite: str, results: str
) -> str:
    names = ", ".join(dict.fromkeys(line.row.label for line in lines))
    devices: dict[str, None] = {}
    models_by_shape: dict[str, list[str]] = {}
    for line in lines:
        way = comparison.speeds_of(line, question)
        if way is not None:
            devices[way.speeds.device] = None
        shape = join(_shape_options(question, line, way))
        models_by_shape.setdefault(shape, []).append(line.row.results[0]["label"])
    place = f" on {', '.join(devices)}, where others were," if devices else ""
    common = ["--suite", suite, "--form", comparison.form, "--results", results]
    commands = []
    for shape, models in models_by_shape.items():
        unique = ",".join(dict.fromkeys(models))
        command = join(["linbench", "bench", VERBS[question], "--models", unique, *common])
        commands.append(f"{command} {shape}")
    title = TITLES[question].lower()
    return f"the speed of {title} is not stored for {names}; measured{place} by: {'; '.join(commands)}"


def _shape_options(question: str, line: ComparisonRow, way: SpeedSelection | None) -> list[str]:
    """Return the shape at which others were measured, else the tested length if a batch holds it."""
    cell = line.row.results[0]["cell"]
    device = ["--device", "cpu"] if cell["device"] == "cpu" else []
    if way is not None:
        bench = next(iter(way.results.values()))["bench"]
        batch, length = bench["shape"]["batch"], bench["shape"]["length"]
        many = ["--batch", str(batch)] if question == "decode" else ["--tokens", str(batch * length)]
        return ["--lengths", str(length), *many, "--dtype", bench["precision"], *device]
    tested = cell["task"]["settings"].get("seq_len")
    if tested is None or tested > resolve_preset(default_preset(cell["device"])).tokens:
        return device
    return ["--lengths", str(tested), *device]
