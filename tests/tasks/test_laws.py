"""Laws of every task, for shipped presets and other settings alike.

`pytest tests/tasks/test_laws.py --write-digests` notes new digests.
"""

import hashlib
import inspect
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from linbench.common.errors import UserError
from linbench.tasks import random
from linbench.tasks.base import Batch, Prediction, Skill, Split, Task
from tests.helpers.presets import FIRST_OF_EACH_PATH, SHIPPED_TASKS
from tests.helpers.tasks import sample, unanswered

DIGESTS = Path(__file__).parent / "digests.json"
DIGESTED = 64
MANY = 10_000
SHORT, LONG, NUMBERS = 2**17, 2**22, 2**28
"""Tokens that a solver is given at most, those of nightly tests, and numbers of answers with vectors."""
TOKENS = 1 << 21
"""Tokens that a solver works on at a time."""
ANSWERS = 1 << 16
"""Answers that an optimum below 1 is compared on, at most."""
PRESETS = [
    pytest.param(name, preset, marks=() if preset == next(iter(cls.presets)) else pytest.mark.slow)
    for name, cls in SHIPPED_TASKS.items()
    for preset in cls.presets
]


def build(name: str, **values: Any) -> Task:
    cls = SHIPPED_TASKS[name]
    task: Task = cls(cls.Settings.parse(values, where="task"))
    return task


def preset(name: str, which: str) -> Task:
    return build(name, **SHIPPED_TASKS[name].presets[which].task)


def built_or_refused(name: str, values: dict[str, Any]) -> Task | str:
    try:
        return build(name, **values)
    except UserError as refused:
        return str(refused)


def tensors(batch: Batch) -> dict[str, Tensor]:
    return {
        "inputs": batch.inputs,
        "positions": batch.positions,
        "targets": batch.targets,
        **batch.slices,
        **batch.facts,
    }


def rows(batch: Batch, where: Tensor | slice) -> dict[str, Tensor]:
    return {name: x[where] for name, x in tensors(batch).items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(x, b[name]) for name, x in a.items())


def check_structure(task: Task, batch: Batch, count: int) -> None:
    io, T, N = task.io, task.seq_len, task.answers
    assert (io.vocab_in is None) != (io.d_in is None)
    assert (io.vocab_out is None) != (io.d_out is None)
    if io.vocab_in is not None:
        assert batch.inputs.shape[:2] == (count, T)
        assert batch.inputs.dim() in (2, 3)
        assert batch.inputs.dtype == torch.int64
        assert 0 <= batch.inputs.min() <= batch.inputs.max() < io.vocab_in
    else:
        assert (batch.inputs.shape, batch.inputs.dtype) == ((count, T, io.d_in), torch.float32)
        assert batch.inputs.isfinite().all()
    assert (batch.positions.shape, batch.positions.dtype) == ((count, N), torch.int64)
    assert 0 <= batch.positions.min() <= batch.positions.max() < T
    if io.vocab_out is not None:
        assert (batch.targets.shape, batch.targets.dtype) == ((count, N), torch.int64)
        asked = batch.targets[batch.is_answer]
        assert asked.numel()
        assert 0 <= asked.min() <= asked.max() < io.vocab_out
    else:
        assert (batch.targets.shape, batch.targets.dtype) == ((count, N, io.d_out), torch.float32)
        assert batch.targets.isfinite().all()
    assert batch.slices.keys() == task.slice_sizes().keys()
    for name, size in task.slice_sizes().items():
        assert (batch.slices[name].shape, batch.slices[name].dtype) == ((count, N), torch.int64), name
        assert 0 <= batch.slices[name].min() <= batch.slices[name].max() < size, name
    assert all(x.shape[:2] == (count, N) for x in batch.facts.values())
    assert 0 <= task.chance() < task.optimum() <= 1


def accuracy(task: Task, batches: Iterable[Batch]) -> float:
    right = counted = 0.0
    for batch in batches:
        answers = task.solve(unanswered(batch))
        value, weight = task.score(batch, Prediction(answers, torch.zeros(batch.positions.shape)))["accuracy"]
        right, counted = right + float(value), counted + float(weight)
    assert counted > 0
    return right / counted


def check_solver(task: Task, examples: int) -> None:
    """Right wherever the task can be, and where it cannot within four standard errors, were every example one
    answer, of what it says."""
    optimum = task.optimum()
    if optimum < 1:
        examples = min(examples, ANSWERS // task.answers)
    at_once = max(1, TOKENS // max(task.seq_len, task.answers * (task.io.d_out or 1)))
    firsts = range(0, examples, at_once)
    found = accuracy(
        task, (sample(task, min(at_once, examples - first), first=first, split="test") for first in firsts)
    )
    slack = 0.0 if optimum == 1 else 4 * (optimum * (1 - optimum) / examples) ** 0.5
    assert abs(found - optimum) <= slack, f"{found} is not {optimum}"


@pytest.mark.parametrize("name", SHIPPED_TASKS)
def test_a_task_says_what_it_is(name: str) -> None:
    cls = SHIPPED_TASKS[name]
    assert cls.skill in get_args(Skill)
    assert cls.presets
    card = (cls.__doc__ or "").strip()
    assert len(card.splitlines()[0]) < 120
    assert "arXiv" in card or "linbench's own" in card, "a card names its source"
    question, explained = (
        re.sub("`[^`]+`", "code", " ".join(part.split())) for part in inspect.cleandoc(card).split("\n\n")[:2]
    )
    assert re.fullmatch(r"[^.?!]+\?", question)
    sentences = re.findall(r"[^.?!]+[.?!](?= |$)", explained)
    assert 2 <= len(sentences) <= 7, "what is asked, what makes it hard, and what it does not tell"
    assert max(len(sentence.split()) for sentence in sentences) <= 45
    before, told, after = sentences[-1].partition(" does not tell ")
    assert told, sentences[-1]
    assert re.fullmatch(r" (Like [^.]+, it|It)", before)
    assert re.fullmatch(r"[^.]+[.]", after)
    for field_name, field in cls.Settings.model_fields.items():
        assert field.description, field_name
    assert all(p.about for p in cls.presets.values())


@pytest.mark.parametrize(("name", "which"), PRESETS)
def test_presets_are_as_tasks_are(name: str, which: str) -> None:
    task = preset(name, which)
    batch = sample(task, 4)
    check_structure(task, batch, 4)
    for row in range(2):
        text = task.explain(batch, row)
        assert len(text) > 40
    check_solver(task, 16 if task.optimum() == 1 else min(200, (SHORT >> 1) // task.seq_len))


def check_rows(task: Task, whole: Batch) -> None:
    """The first rows of the training split are the same alone and in another order."""
    count = len(whole.positions)
    for row in {0, count // 2, count - 1}:
        assert same(
            tensors(task.sample(torch.tensor([row]), seed=0, split="train")), rows(whole, slice(row, row + 1))
        )
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    assert same(tensors(task.sample(order, seed=0, split="train")), rows(whole, order))


def check_nothing_later_is_needed(task: Task, batch: Batch) -> None:
    """The solver answers the same when all after a place is that of other examples; the answers of a code are
    due after the last token."""
    if task.io.readout == "code":
        return
    expected = task.solve(unanswered(batch))
    other = sample(task, len(batch.positions), first=100).inputs
    for n in {0, task.answers // 2, task.answers - 1}:
        at = batch.positions[:, n]
        late = torch.arange(task.seq_len) > at[:, None]
        late = late.view(*late.shape, *[1] * (batch.inputs.dim() - 2))
        found = task.solve(unanswered(batch._replace(inputs=torch.where(late, other, batch.inputs))))
        due = batch.is_answer[:, n]
        assert torch.equal(found[:, n][due], expected[:, n][due])


@pytest.mark.parametrize("name", SHIPPED_TASKS)
def test_a_row_depends_on_its_own_index_only(name: str) -> None:
    task = preset(name, next(iter(SHIPPED_TASKS[name].presets)))
    whole = sample(task, 12)
    check_rows(task, whole)
    assert same(tensors(task.sample(torch.arange(12), seed=torch.tensor(0), split="train")), tensors(whole))
    assert same(
        tensors(task.sample(torch.arange(12), seed=torch.zeros(12, dtype=torch.int64), split="train")),
        tensors(whole),
    )


@pytest.mark.parametrize("name", SHIPPED_TASKS)
def test_seeds_and_splits_differ(name: str) -> None:
    task = preset(name, next(iter(SHIPPED_TASKS[name].presets)))
    splits: tuple[Split, ...] = ("train", "validation", "test")
    batches = [sample(task, 16, seed=seed, split=split) for seed in (0, 1) for split in splits]
    for i, a in enumerate(batches):
        assert not any(torch.equal(a.inputs, b.inputs) for b in batches[:i])


@pytest.mark.parametrize("name", SHIPPED_TASKS)
def test_a_draw_never_waits_for_the_device(name: str) -> None:
    """A captured step could not: shapes must not depend on values, nor Python on tensors."""
    task = preset(name, next(iter(SHIPPED_TASKS[name].presets)))
    sample(task, 3)  # tables are made
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        index = mode.from_tensor(torch.arange(3))
        batch = task.sample(index, seed=mode.from_tensor(torch.zeros(3, dtype=torch.int64)), split="train")
    assert batch.positions.shape == (3, task.answers)


@pytest.mark.parametrize("name", SHIPPED_TASKS)
def test_an_answer_needs_nothing_that_comes_after_it_is_due(name: str) -> None:
    task = preset(name, next(iter(SHIPPED_TASKS[name].presets)))
    check_nothing_later_is_needed(task, sample(task, 4))


@pytest.mark.parametrize(
    "name", [name for name, cls in SHIPPED_TASKS.items() if cls.baselines is not Task.baselines]
)
def test_baselines_know_no_more_than_a_model_and_do_no_better_than_the_best(name: str) -> None:
    """Not the targets, and nothing that comes after an answer is due."""
    task = preset(name, next(iter(SHIPPED_TASKS[name].presets)))
    batch, other = sample(task, 64, split="test"), sample(task, 64, first=100).inputs
    at = task.answers // 2
    late = (torch.arange(task.seq_len) > batch.positions[:, at, None]).view(
        64, task.seq_len, *[1] * (batch.inputs.dim() - 2)
    )
    cut = task.baselines(unanswered(batch._replace(inputs=torch.where(late, other, batch.inputs))))
    for which, baseline in task.baselines(batch).items():
        assert baseline.answers.shape == batch.targets.shape
        assert torch.equal(baseline.answers[:, at], cut[which].answers[:, at]), which
        value, weight = task.score(batch, baseline)["accuracy"]
        assert float(value / weight) < task.optimum() + 0.03, which


@pytest.mark.parametrize("name", SHIPPED_TASKS)
def test_what_stands_in_examples_is_judged_right_and_without_its_end_wrong(name: str) -> None:
    """Tasks in which a model writes; the prompt alone is never right."""
    task = preset(name, next(iter(SHIPPED_TASKS[name].presets)))
    batch = sample(task, 16, "test")
    writing = task.writing
    if writing is None:
        return
    place, prompt = torch.arange(task.seq_len), task.prompts(batch)[:, None]
    ends = (place >= prompt) & (batch.inputs == writing.end)
    whole = ends.any(dim=1)  # the last one of a packed row may be cut off
    last = ends.int().argmax(dim=1, keepdim=True)
    assert int(whole.sum()) > 8
    assert int((last - prompt)[whole].max()) < writing.tokens
    assert task.judge(batch, torch.where(place <= last, batch.inputs, 0))[whole].all()
    assert not task.judge(batch, torch.where(place < prompt, batch.inputs, 0)).any()
    other = torch.where(place < prompt, batch.inputs, batch.inputs.roll(1, dims=0))
    assert not task.judge(batch, torch.where(place <= last, other, 0))[whole].all()


@pytest.mark.parametrize("name", SHIPPED_TASKS)
def test_longer_sequences_ask_as_much(name: str) -> None:
    first = next(iter(SHIPPED_TASKS[name].presets))
    task = preset(name, first)
    longer = build(name, **{**SHIPPED_TASKS[name].presets[first].task, **task.longer(2)})
    assert longer.io == task.io
    assert longer.seq_len > task.seq_len
    check_structure(longer, sample(longer, 4), 4)
    check_solver(longer, 8 if longer.optimum() == 1 else 100)


def test_what_longer_sequences_hold_is_told_of_every_task() -> None:
    """Each in one of three lists; those of which it is said that there is as much to hold have as many
    answers."""
    section = (
        (Path(__file__).parents[2] / "docs" / "tasks.md")
        .read_text()
        .partition("## Longer than trained")[2]
        .partition("\n## ")[0]
    )
    told = [
        [name for name in re.findall(r"`(\w+)`", item) if name in SHIPPED_TASKS]
        for item in re.findall(r"^- (.*?)[;.]$", section, re.DOTALL | re.MULTILINE)
    ]
    assert sorted(name for names in told for name in names) == sorted(SHIPPED_TASKS)
    as_much, *_ = told
    for name in as_much:
        first = next(iter(SHIPPED_TASKS[name].presets))
        task = preset(name, first)
        assert (
            build(name, **{**SHIPPED_TASKS[name].presets[first].task, **task.longer(2)}).answers
            == task.answers
        ), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "which", "examples"),
    [
        *((*one.values, 2000 if one.values in FIRST_OF_EACH_PATH else 200) for one in PRESETS),
        *(pytest.param(*one.values, MANY, marks=pytest.mark.nightly) for one in PRESETS),
    ],
)
def test_the_solver_attains_the_optimum(name: str, which: str, examples: int) -> None:
    task = preset(name, which)
    tokens = LONG if examples == MANY else SHORT
    check_solver(
        task, min(examples, tokens // task.seq_len, NUMBERS // (task.answers * (task.io.d_out or 1)))
    )


def digest(task: Task, device: str = "cpu") -> str:
    """SHA-256 of the first examples of every split."""
    found = hashlib.sha256()
    for split in ("train", "validation", "test"):
        batch = task.sample(torch.arange(DIGESTED, device=device), seed=0, split=split)  # type: ignore[arg-type]
        for name, x in sorted(tensors(batch).items()):
            # devices may round the last bits otherwise
            exact = x if not x.is_floating_point() else (x * 2**16).round().long()
            found.update(name.encode() + exact.long().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


@pytest.mark.parametrize(("name", "which"), PRESETS)
def test_examples_are_those_of_this_version(name: str, which: str, request: pytest.FixtureRequest) -> None:
    """The examples of every preset are written down as digests.

    Whoever changes them raises the version of the task, or that of `random`, which all draw with.
    """
    versions, found = (
        {"draws": random.VERSION, "version": SHIPPED_TASKS[name].version},
        digest(preset(name, which)),
    )
    all_noted = json.loads(DIGESTS.read_text())
    noted = all_noted.get(name, {})
    if request.config.getoption("--write-digests"):
        kept = noted["presets"] if versions.items() <= noted.items() else {}
        noted = {
            **versions,
            "presets": {
                one: kept.get(one, found)
                for one in SHIPPED_TASKS[name].presets
                if one in kept or one == which
            },
        }
        DIGESTS.write_text(json.dumps(dict(sorted({**all_noted, name: noted}.items())), indent=1) + "\n")
    assert versions.items() <= noted.items()
    assert noted["presets"][which] == found


@pytest.mark.parametrize("name", SHIPPED_TASKS)
def test_examples_of_every_preset_and_of_no_other_are_written_down(name: str) -> None:
    noted = json.loads(DIGESTS.read_text())
    assert noted[name]["presets"].keys() == SHIPPED_TASKS[name].presets.keys()
    assert noted.keys() == SHIPPED_TASKS.keys()


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "which"), PRESETS)
def test_a_gpu_draws_the_same(name: str, which: str) -> None:
    task = preset(name, which)
    here, there = (
        task.sample(torch.arange(DIGESTED, device=device), seed=0, split="test") for device in ("cpu", "cuda")
    )
    for key, x in tensors(here).items():
        y = tensors(there)[key].cpu()
        assert torch.allclose(x, y, rtol=0, atol=1e-6) if x.is_floating_point() else torch.equal(x, y), key


def _values(default: Any, annotation: Any) -> st.SearchStrategy[Any] | None:
    """Other values of a setting, near the one it has."""
    if isinstance(default, bool):
        return st.booleans()
    if isinstance(default, int):
        return st.sampled_from(sorted({1, 2, 3, max(1, default // 2), default + 1, 2 * default}))
    if isinstance(default, float):
        return st.sampled_from([0.0, default / 2, default, min(1.0, 2 * default), 1.0])
    if isinstance(default, tuple):
        return st.sampled_from([default, default[:1], default[1:], (0, 1), (3,)])
    if default is None:
        return st.sampled_from([None, 0.0, 0.5, 1, 3])
    options = get_args(annotation)
    return (
        st.sampled_from(options) if options and all(isinstance(option, str) for option in options) else None
    )


FEW = 5
"""Other settings of a task that are tried each time."""


@pytest.mark.parametrize(
    ("name", "settings_tried"),
    [
        *((name, FEW) for name in SHIPPED_TASKS),
        *(pytest.param(name, 25, marks=[pytest.mark.slow, pytest.mark.nightly]) for name in SHIPPED_TASKS),
    ],
)
def test_other_settings_are_refused_in_a_sentence_or_sound(name: str, settings_tried: int) -> None:
    cls = SHIPPED_TASKS[name]
    base = cls.Settings.parse(next(iter(cls.presets.values())).task, where="task").model_dump()
    strategies = {
        field: _values(base[field], info.annotation) for field, info in cls.Settings.model_fields.items()
    }
    strategies = {field: strategy for field, strategy in strategies.items() if strategy is not None}

    @settings(
        max_examples=settings_tried,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.fixed_dictionaries({}, optional=strategies))
    def holds(values: dict[str, Any]) -> None:
        assume(len(values) <= 3)
        task = built_or_refused(name, {**base, **values})
        if isinstance(task, str):
            assert "\n" not in task
            assert task.endswith(".")
            return
        if task.seq_len > 4096:
            return
        batch = sample(task, 4)
        check_structure(task, batch, 4)
        check_rows(task, batch)
        check_nothing_later_is_needed(task, batch)
        if task.optimum() == 1:
            check_solver(task, 4)

    holds()
