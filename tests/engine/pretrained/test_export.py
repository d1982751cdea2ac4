"""Exported models: transformers loads them, and they score what linbench says of them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from linbench.common.errors import UserError
from linbench.engine.pretrained.ask import PretrainedCase, Question
from linbench.engine.pretrained.export import refuse_export, train_and_export
from linbench.engine.pretrained.language_model import LanguageModel, load_language_model, torch_left_alone
from linbench.engine.progress import NoProgress
from linbench.experiments.cell import Cell
from tests.helpers.cells import plan, tiny_settings
from tests.helpers.language_models import question

pytest.importorskip("transformers")

EXAMPLES = 300
"""More than are scored at a time."""

COUNTER = {"task.seq_len": 32, "task.counters": 2, "task.most": 3}


def build(task: str, model: str, **more: Any) -> Cell:
    settings = tiny_settings(examples=EXAMPLES) | {"protocol.batch_size": 32}
    if task != "mqar":
        settings = {name: value for name, value in settings.items() if not name.startswith("task.")}
    (cell,) = plan(task, [model], device="cpu", settings=settings | more, seeds=[3])
    return cell


def as_asked(cell: Cell) -> Question:
    return Question(cell.task, cell.task_entry, None, 0, "hidden", cell.seed, EXAMPLES)


def load(folder: Path) -> LanguageModel:
    return load_language_model(str(folder), device="cpu")


CASES = [
    ("mqar", "deltanet", {}),
    ("mqar", "attention+gated_deltanet", {"model.loops": 2}),
    ("mqar", "gla", {"protocol.precision": "bf16"}),
    ("mqar", "performer", {"model.tie_embeddings": False}),
    ("mqar", "attention+mamba2+attention", {"model.tied": "attention"}),
    ("counter", "mingru", COUNTER),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "model", "settings"), CASES, ids=lambda case: case if isinstance(case, str) else ""
)
def test_an_exported_model_scores_what_linbench_says(
    tmp_path: Path, one_thread: None, task: str, model: str, settings: dict[str, Any]
) -> None:
    cell = build(task, model, **settings)
    refuse_export(cell, tmp_path)
    trained = train_and_export(cell, tmp_path, NoProgress())
    answered = PretrainedCase(load(tmp_path), as_asked(cell)).result()
    assert trained["status"] == "ok"
    assert answered["metrics"] == {name: trained["metrics"][name] for name in answered["metrics"]}
    assert answered["slices"] == trained["slices"]
    assert (answered["chance"], answered["optimum"]) == (trained["chance"], trained["optimum"])
    assert answered["probe"]["precision"] == cell.protocol.precision
    assert answered["choices"] == cell.task.io.vocab_out
    state, declared = answered["state"], trained["model"]["state"]
    assert state is not None
    assert declared is not None
    assert state["recurrent"] + state["cache"] == 4 * declared["total"]
    assert state["cache"] == 4 * declared["cache"]
    refuse_export(cell, tmp_path)  # an older export may be replaced


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    train_and_export(build("mqar", "deltanet+attention"), folder, NoProgress())
    return folder


def test_transformers_loads_it_and_goes_on_from_a_state(exported: Path) -> None:
    from transformers import AutoModelForCausalLM

    import linbench.engine.pretrained.exported  # noqa: F401

    with torch_left_alone():
        model = AutoModelForCausalLM.from_pretrained(exported)
    tokens = torch.randint(16, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole = model(input_ids=tokens)
        first = model(input_ids=tokens[:, :5], use_cache=True, capacity=9)
        rest = model(input_ids=tokens[:, 5:], past_key_values=first.past_key_values, logits_to_keep=2)
        chosen = model(input_ids=tokens, logits_to_keep=torch.tensor([[8], [3]])).logits
    assert whole.past_key_values is None
    assert whole.logits.shape == (2, 9, 16)
    assert torch.allclose(rest.logits, whole.logits[:, -2:], atol=1e-5)
    assert torch.allclose(chosen[:, 0], whole.logits[[0, 1], [8, 3]], atol=1e-5)


def test_an_exported_model_is_asked_only_what_it_was_trained_on(exported: Path) -> None:
    model = load(exported)
    of_its_size = {"seq_len": 16, "kv_pairs": 2, "vocab_size": 16}
    for asked, word in (
        (question("parity"), "parity"),
        (question("mqar"), "256"),
        (question("mqar", shots=1, **of_its_size), "--shots 0"),
        (question("mqar", answers="written", **of_its_size), "--answers hidden"),
    ):
        with pytest.raises(UserError, match=word):
            PretrainedCase(model, asked)
    PretrainedCase(model, question("mqar", **of_its_size | {"seq_len": 32}))


def test_a_model_of_another_version_is_refused(exported: Path, tmp_path: Path) -> None:
    for file in exported.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    config["spec"]["layers"][0]["version"] += 1
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="another version"):
        load(tmp_path).module  # noqa: B018


def test_what_cannot_be_exported_is_refused_before_it_trains(tmp_path: Path) -> None:
    cell = build("mqar", "deltanet")
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(UserError, match="something else"):
        refuse_export(cell, tmp_path)
    with pytest.raises(UserError, match="something else"):
        refuse_export(cell, tmp_path / "notes.txt")
    ladder = replace(cell, protocol=cell.protocol.model_copy(update={"rungs": 3}))
    with pytest.raises(UserError, match="rungs"):
        refuse_export(ladder, tmp_path / "new")
    with pytest.raises(UserError, match="regression"):
        refuse_export(build("regression", "deltanet"), tmp_path / "new")
    assert not (tmp_path / "new").exists()
