"""`linbench probe`: ask tasks of language models that are already trained."""

import json
import sys
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from linbench.cli import completion
from linbench.cli.drawing import draw_beside
from linbench.cli.options import (
    MOST,
    DeviceOption,
    JsonOption,
    ResultsOption,
    parse_names,
    task_settings,
    warn_ignored_files,
    whole_option,
)
from linbench.common.numbers import LARGEST
from linbench.common.streams import tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from linbench.engine.pretrained.ask import PretrainedCase, Question
    from linbench.report.figure import Drawing
    from linbench.results.schema.pretrained import PretrainedResult
    from linbench.results.store import Store

EXAMPLES = """
Examples:

  linbench probe ./my-model --task mqar,variable_overwrite,needle

  linbench probe state-spaces/mamba-130m-hf --task mqar,p_hop --shots 4

  linbench probe ./my-model --task group_word --shots 2 --answers hidden --set task.group=Z60
"""


class Answers(StrEnum):
    """The two ways to ask: without or with earlier answers in the asked example."""

    hidden = "hidden"
    written = "written"


def probe(
    model: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER|ID",
            help="Causal language model of transformers: a local folder, or the id of a model on the hub.",
        ),
    ],
    task: Annotated[
        str,
        typer.Option(
            "--task",
            "-t",
            metavar="TASKS",
            autocompletion=completion.tasks,
            help="Tasks, comma-separated: names, NAME/PRESET, ./file.py:Class or package.module:Class.",
        ),
    ],
    preset: Annotated[
        str | None,
        typer.Option(autocompletion=completion.presets, help="Preset of the task (default: its first)."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Change a setting of the task: task.NAME."),
    ] = None,
    shots: Annotated[
        int,
        whole_option(
            "--shots", 0, 1024, help="Training examples, with their answers, before the one that is asked."
        ),
    ] = 0,
    answers: Annotated[
        Answers | None,
        typer.Option(
            help=(
                "hidden: the asked example is the sequence that linbench trains on. written: it holds its"
                " earlier answers, as the shots do, so that each can be worked out from the one before; to"
                " track a state is then one step at a time. Default: hidden without shots, else written."
            )
        ),
    ] = None,
    examples: Annotated[
        int | None,
        whole_option(
            "--examples",
            1,
            MOST,
            help="Number of test examples of each task.",
            show_default="as many as models are tested on",
        ),
    ] = None,
    seed: Annotated[int, whole_option("--seed", 0, LARGEST, help="Seed of the examples.")] = 0,
    device: DeviceOption = "auto",
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype",
            help=(
                "bf16 or fp32; default: what an exported model was trained in, else fp32 on a CPU and bf16 on"
                " a GPU."
            ),
        ),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Repeat finished tasks.")] = False,
    results: ResultsOption = Path("results"),
    as_json: JsonOption = False,
) -> None:
    """Ask tasks of a language model that is already trained, and show its scores and its bytes of state.

    Each key, value and mark of a task is written as one token of the model: whole words in the order of their
    ids, the first of which separates examples. An answer is the likeliest of those that the task allows. The
    scores are those of trained models: accuracy, kinds of errors and slices. Finished tasks are read from the
    results folder and not asked again. Figures show the model beside all others there that were asked the
    same.

    This needs the extra transformers. No code of a model's own is run, and no weights are read but from
    safetensors files. A folder that linbench run --export has written is asked in the tokens that it was
    trained on.
    """
    from rich.console import Console

    from linbench.engine.pretrained.ask import PretrainedCase
    from linbench.engine.pretrained.language_model import load_language_model
    from linbench.experiments.device import pick_device
    from linbench.report.tables.pretrained import pretrained_tables
    from linbench.results.reference import store_at

    with redirect_stdout(sys.stderr):  # a plugin may print; standard output is ours
        place = pick_device(device)
        questions = [
            _question(name, preset, set_ or [], shots, answers, seed, examples)
            for name in parse_names("--task", task, required=True)
        ]
        asked = load_language_model(model, device=place, dtype=dtype)
        cases = [PretrainedCase(asked, question) for question in questions]
        store = store_at(results)
        found = [_result(case, store, again=again) for case in cases]
    tables = pretrained_tables(found)
    if as_json:
        print(json.dumps(found))
    elif sys.stdout.isatty():
        for table in tables:
            Console().print(table.to_terminal())
    else:
        print("\n".join(table.to_markdown() for table in tables))
    code = draw_beside(store, lambda: _drawings(found, store))
    warn_ignored_files(store.set_aside)
    if code:
        raise typer.Exit(code)


def _question(
    name: str,
    preset: str | None,
    pairs: list[str],
    shots: int,
    answers: Answers | None,
    seed: int,
    examples: int | None,
) -> "Question":
    """Return a task as it is asked; the preset of a result is named where no setting was changed."""
    from linbench.engine.pretrained.ask import Question
    from linbench.experiments.plan_tasks import make_task
    from linbench.experiments.protocol import default_protocol

    settings = task_settings(pairs, "probe")
    task, entry, chosen = make_task(name, preset=preset, settings=settings)
    names = [known for known, one in task.presets.items() if one is chosen and not settings]
    default = Answers.written if shots else Answers.hidden
    return Question(
        task=task,
        entry=entry,
        preset=names[0] if names else None,
        shots=shots,
        answers=(answers or default).value,
        seed=seed,
        examples=examples or {**default_protocol(), **chosen.protocol}["test_examples"],
    )


def _result(case: "PretrainedCase", store: "Store", *, again: bool) -> "PretrainedResult":
    """Return the stored result of what is asked, or ask it and store the result."""
    from linbench.results.record import is_pretrained

    name = case.question.entry.name
    stored = None if again else store.find(case.id)
    if stored is not None and is_pretrained(stored):
        tell(f"{name}: stored")
        return stored
    store.may_add()
    store.prepare()
    tell(f"{name}: asking {case.question.examples:,} examples")
    result = case.result()
    store.put(result)
    tell(f"{name}: accuracy {result['metrics']['accuracy']:.3f}, {result['seconds']:.1f} s")
    return result


def _drawings(found: "Sequence[PretrainedResult]", store: "Store") -> "list[Drawing]":
    """Return the figures of what was asked, of all models in the store that were asked the same."""
    from linbench.report.data import ReportData
    from linbench.report.figures import drawings
    from linbench.results.probes import asked_groups
    from linbench.results.store import PROBE

    data, ids = ReportData(pretrained=store.by_kind()[PROBE]), {result["id"] for result in found}
    groups = asked_groups(data.pretrained)
    asked = {group.slug for group in groups if ids & {result["id"] for result in group.results}}
    return [drawing for drawing in drawings(data, ["language-models"]) if drawing.table in asked]


probe.__doc__ = (probe.__doc__ or "") + EXAMPLES
