import importlib
import pickle
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linbench.common.errors import UserError
from linbench.common.hashing import canonical, digest
from linbench.experiments.cell import Cell
from tests.helpers.cells import plan
from tests.helpers.processes import imported


def one(model: str = "gated_deltanet", **more: object) -> Cell:
    return plan("mqar", [model], device="cpu", **more)[0]  # type: ignore[arg-type]


def test_seeds_and_models_multiply() -> None:
    cells = plan("mqar", ["attention", "deltanet"], seeds=[0, 1, 2], device="cpu")
    assert [(cell.model.label, cell.seed) for cell in cells] == [
        (m, s) for m in ("attention", "deltanet") for s in (0, 1, 2)
    ]
    assert len({cell.id for cell in cells}) == 6


def test_user_overrides_preset_overrides_default() -> None:
    assert one().task.settings.filler == "zero"
    assert one(settings={"task.filler": "published"}).task.settings.filler == "published"
    assert one(preset="quick-hard").model.form == "controlled"
    assert one(preset="quick-hard", form="native").model.form == "native"
    assert one(settings={"protocol.lr": "3e-3"}).protocol.lr == 0.003


def test_a_preset_is_named_while_everything_is_what_it_says() -> None:
    assert one().preset == "quick"
    assert one(preset="quick-hard").preset == "quick-hard"
    assert one("attention+deltanet").preset == "quick"
    for changed in (
        {"task.kv_pairs": 4},
        {"protocol.tokens": 1000},
        {"model.heads": 4},
        {"model.output_gate": "swish"},
    ):
        assert one(settings=changed).preset is None
    assert one(preset="quick-hard", form="native").preset is None


def test_a_preset_may_set_one_model_alone() -> None:
    gates = [
        cell.model.layers[0].settings.output_gate
        for cell in plan("mqar", ["gated_deltanet", "retnet"], preset="quick", device="cpu")
    ]
    assert gates == [
        "none",
        "swish",
    ], "quick takes the gate from Gated DeltaNet, as published for this task, and from no other"
    assert one(settings={"model.output_gate": "swish"}).model.layers[0].settings.output_gate == "swish"


def test_seeds_may_come_from_anywhere() -> None:
    cells = plan("mqar", ["attention", "deltanet"], seeds=(seed for seed in range(3)), device="cpu")
    assert [cell.seed for cell in cells] == [0, 1, 2] * 2


def test_model_settings_go_where_they_belong() -> None:
    cell = one(
        "attention+deltanet", settings={"model.d_model": 32, "model.heads": 4, "model.attention.window": 8}
    )
    assert cell.model.backbone.d_model == 32
    assert [layer.settings.heads for layer in cell.model.layers] == [4, 4]  # type: ignore[attr-defined]
    assert cell.model.layers[0].settings.window == 8  # type: ignore[attr-defined]
    assert one("attention[window=4]").model.layers[1].settings.window == 4  # type: ignore[attr-defined]


def test_null_is_none_wherever_it_is_written() -> None:
    assert one("attention[window=null]").model.layers[0].settings.window is None  # type: ignore[attr-defined]
    assert one(settings={"model.head_dim": "null", "model.conv": "0"}).model.layers[0].settings.conv == 0  # type: ignore[attr-defined]


def test_patterns_fill_the_layers() -> None:
    assert [layer.entry.name for layer in one("deltanet").model.layers] == ["deltanet"] * 2
    assert [layer.entry.name for layer in one("3xgated_deltanet+attention").model.layers] == [
        "gated_deltanet"
    ] * 3 + ["attention"]
    assert len(one("deltanet+attention", settings={"model.layers": 6}).model.layers) == 6
    with pytest.raises(UserError, match=r"model\.layers = 5 .* 2, 4, \.\.\."):
        one("deltanet+attention", settings={"model.layers": 5})


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"settings": {"model.head": 2}}, r"unknown setting 'model.head'; did you mean 'model.heads'"),
        ({"settings": {"model.window": 2}}, r"unknown setting 'model.window'"),
        ({"settings": {"task.kv_pair": 2}}, r"did you mean 'task.kv_pairs'"),
        ({"settings": {"protocol.learning": 2}}, r"unknown setting 'protocol.learning'"),
        ({"settings": {"lr": 2}}, r"unknown setting 'lr'.*protocol.NAME"),
        ({"settings": {"qk_norm": "l2"}}, r"unknown setting 'qk_norm'; did you mean 'model.qk_norm'\?"),
        ({"settings": {"model.heads": 7}}, r"model.heads = 7 splits d_model = 64"),
        (
            {"settings": {"task.vocab_size": 1 << 40}},
            r"task\.vocab_size .*1,073,741,824.*1099511627776",
        ),
        (
            {"settings": {"task.kv_pairs": 40}},
            r"at most 16 pairs fit in 64 tokens, or 160 tokens hold 40 pairs",
        ),
        ({"preset": "quik"}, r"did you mean 'quick'"),
        ({"form": "controled"}, r"did you mean 'controlled'"),
    ],
)
def test_mistakes_are_refused_before_anything_runs(more: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        one(**more)


def test_a_task_with_one_answer_is_refused(tmp_path: Path) -> None:
    sure = "def chance(self):\n        return 1.0 if self.settings.kv_pairs == 1 else super().chance()\n"
    (tmp_path / "sure.py").write_text(f"from linbench.tasks.mqar import MQAR\nclass Sure(MQAR):\n    {sure}")
    for one_pair in ({"settings": {"task.kv_pairs": 1}}, {"test": [{"kv_pairs": 1}]}):
        with pytest.raises(UserError, match="mqar has only one possible answer"):
            plan(f"{tmp_path / 'sure.py'}:Sure", ["attention"], **one_pair)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("device", "sentence"),
    [
        ("cuda:99", "--device cuda:99 is not available: |there is no cuda:99 here"),
        ("mps", "nothing runs on mps yet"),
    ],
)
def test_devices_that_are_not_there_are_refused(device: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        plan("mqar", ["attention"], device=device)


def test_any_change_of_what_decides_a_result_changes_the_id() -> None:
    base = one()
    changed = [
        one(settings={"task.vocab_size": 258}),
        one(settings={"model.d_model": 128}),
        one(settings={"model.heads": 4}),
        one(settings={"model.neg_eigval": True}),
        one(settings={"protocol.lr": 0.004}),
        one("deltanet"),
        one(form="controlled"),
        one(seeds=[1]),
    ]
    assert len({cell.id for cell in [base, *changed]}) == len(changed) + 1
    assert one("gated_deltanet+gated_deltanet").id == base.id


SEGMENTS = [{"seq_len": 32, "kv_pairs": 4, "examples": 100}, {"kv_pairs": 2, "examples": 50}]
EPOCHS = {"settings": {"protocol.epochs": 2}}


def test_segments_and_tests_change_the_id_and_only_these_do() -> None:
    base = one(**EPOCHS, train=SEGMENTS)
    changed = [
        one(settings={"protocol.epochs": 2, "protocol.examples": 150}),
        one(**EPOCHS, train=SEGMENTS[::-1]),
        one(**EPOCHS, train=[{**SEGMENTS[0], "examples": 101}, {**SEGMENTS[1], "examples": 49}]),
        one(**EPOCHS, train=[{**SEGMENTS[0], "kv_pairs": 5}, SEGMENTS[1]]),
        one(**EPOCHS, train=SEGMENTS, test=[{"seq_len": 128}]),
        one(**EPOCHS, train=SEGMENTS, test=[{"seq_len": 128}, {"seq_len": 64}]),
        one(**EPOCHS, train=SEGMENTS, test=[{"seq_len": 128, "kv_pairs": 9}]),
        one(test=[{"seq_len": 128}]),
        one(),
    ]
    assert len({cell.id for cell in [base, *changed]}) == len(changed) + 1
    assert one(**EPOCHS, train=[{**SEGMENTS[0], "filler": "zero"}, SEGMENTS[1]]).id == base.id, (
        "what the task has already is no change"
    )
    assert one(train=[], test=[]).id == one().id
    assert not {"train", "test"} & one().identity["task"].keys()


def test_a_mixture_travels_whole() -> None:
    cell = one(**EPOCHS, train=SEGMENTS, test=[{"seq_len": 128}])
    other = pickle.loads(pickle.dumps(cell))
    assert (other.id, other.preset, other.purpose, other.steps) == (
        cell.id,
        cell.preset,
        cell.purpose,
        cell.steps,
    )
    assert [segment.task.seq_len for segment in other.segments] == [32, 64]


def test_a_mixture_is_of_the_task_with_some_settings_changed() -> None:
    cell = one(
        settings={"protocol.epochs": 2, "task.filler": "published"},
        train=SEGMENTS,
        test=[{"seq_len": 256, "kv_pairs": 64}, {"seq_len": 128}],
    )
    assert [
        (s.task.settings.seq_len, s.task.settings.kv_pairs, s.task.settings.filler, s.examples)
        for s in cell.segments
    ] == [
        (32, 4, "published", 100),
        (64, 2, "published", 50),
    ]
    assert (cell.task.seq_len, cell.longest_test.seq_len) == (64, 256)
    assert cell.chance == fmean(test.chance() for test in cell.tested_on)
    assert cell.protocol.examples == 150
    assert cell.preset is None
    assert one(test=[{"kv_pairs": 4}]).preset is None


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            {"train": [{"kv_pair": 2, "examples": 5}]},
            r"unknown setting 'train\.0\.kv_pair'; did you mean 'train\.0\.kv_pairs'",
        ),
        ({"test": [{}, {"seq_len": 63}]}, r"test\.1: seq_len must be even"),
        ({"test": [{"examples": 5}]}, r"unknown setting 'test\.0\.examples'"),
        ({"train": [{"kv_pairs": 2}]}, r"train\.0\.examples is missing"),
        ({"train": [{"kv_pairs": 2, "examples": 0}]}, r"train\.0\.examples is 0.* at least 1"),
        ({"train": [{"kv_pairs": 2, "examples": "many"}]}, r"train\.0\.examples is many"),
        (
            {"test": [{"vocab_size": 64}]},
            (r"test\.0 has vocab_in 64, vocab_out 64.* the task has vocab_in 256, vocab_out 256"),
        ),
        ({"train": [{"vocab_size": 64, "examples": 5}]}, r"train\.0 has vocab_in 64"),
        (
            {"train": SEGMENTS, "settings": {"protocol.examples": 7, "protocol.epochs": 2}},
            r"protocol\.examples and train ",
        ),
        (
            {"train": SEGMENTS, "model_settings": [{"protocol.examples": 7}], **EPOCHS},
            r"protocol\.examples and train ",
        ),
        ({"train": SEGMENTS}, r"token budget.*protocol\.epochs"),
    ],
)
def test_mistakes_in_a_mixture_are_refused_in_one_sentence(more: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as refused:
        one(**more)
    assert str(refused.value).endswith(".")


@pytest.mark.slow
def test_the_id_is_the_same_in_another_process() -> None:
    program = (
        "from linbench.experiments.plan import plan\n"
        "from linbench.experiments.run_spec import RunSpec\n"
        "print(plan(RunSpec('mqar', ['gated_deltanet'], device='cpu'))[0].id)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.strip() == one().id


@pytest.mark.parametrize("family", ["matrix_state", "norms", "short_convolution"])
def test_a_changed_kernel_is_a_different_cell(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = one().id
    monkeypatch.setattr(importlib.import_module(f"linbench.kernels.{family}"), "VERSION", 1000)
    assert one().id != before


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("attention", "rotary"),
        ("rwkv4", "token_shift"),
        ("rwkv5", "token_shift"),
        ("rwkv6", "channel_decay"),
        ("rwkv7", "erasure"),
    ],
)
def test_a_family_that_never_changed_results_is_in_no_identity(
    model: str, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = one(model)
    assert family not in before.identity["model"]["layers"][0]["kernel"]
    mixer = before.model.layers[0].entry.cls
    with monkeypatch.context() as patch:
        patch.setattr(
            mixer, "kernel_families", tuple(each for each in mixer.kernel_families if each != family)
        )
        assert one(model).id == before.id
    monkeypatch.setattr(importlib.import_module(f"linbench.kernels.{family}"), "VERSION", 1)
    assert one(model).id != before.id


@pytest.mark.parametrize(
    ("family", "users"),
    [("token_shift", ["rwkv4", "rwkv6", "rwkv7"]), ("gated_product", ["swiglu", "own"])],
)
def test_what_a_channel_mixer_computes_with_is_in_the_identity_of_models_that_have_it(
    family: str, users: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ids() -> dict[str, str]:
        names = ("rwkv4", "rwkv6", "rwkv7", "swiglu", "own", "none")  # its own is SwiGLU
        return {name: one(settings={"model.channel_mixer": name}).id for name in names}

    before = ids()
    monkeypatch.setattr(importlib.import_module(f"linbench.kernels.{family}"), "VERSION", 1000)
    assert [name for name, now in ids().items() if now != before[name]] == users


def test_an_edited_file_is_a_different_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (
        "from torch import nn\nclass Mine(nn.Module):\n    def __init__(self, dim):\n       "
        " super().__init__()\n    def forward(self, x):\n        return {}\n"
    )
    Path("mine.py").write_text(text.format("x"))
    before = one("./mine.py:Mine")
    Path("mine.py").write_text(text.format("2 * x"))
    assert one("./mine.py:Mine").id != before.id
    assert before.model.identity()["layers"][0]["source"]
    with pytest.raises(UserError, match="no controlled form"):
        one("./mine.py:Mine", form="controlled")


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=5),
        st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5) | st.none(),
        max_size=6,
    )
)
def test_key_order_does_not_matter_to_a_digest(values: dict[str, object]) -> None:
    assert digest(dict(reversed(list(values.items())))) == digest(values)
    assert canonical({**values, "extra key": 1}) != canonical(values)


@pytest.mark.slow
def test_planning_loads_no_compiler() -> None:
    """It takes seconds, which every command would wait for."""
    program = (
        "from linbench.experiments.plan import plan\n"
        "from linbench.experiments.registry import SHIPPED, registry\n"
        "from linbench.experiments.run_spec import RunSpec\n"
        "every = [entry for entry in registry('model').entries.values() if entry.source == SHIPPED]\n"
        "for form in ('native', 'controlled'):\n"
        "    able = [e.name for e in every if form == 'native' or e.cls.controlled is not None]\n"
        "    plan(RunSpec('mqar', able, form=form, device='cpu'))\n"
        "for entry in registry('task').entries.values():\n"
        "    (cell,) = plan(RunSpec(entry.name, ['deltanet'], device='cpu'))\n"
        "    cell.model.sketch(cell.task)\n"
    )
    assert imported(program, "torch._dynamo") == set()
