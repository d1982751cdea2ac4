import re
from pathlib import Path
from typing import Any

import pytest

from linbench.common.errors import UserError
from linbench.experiments.cell import Cell
from linbench.results.comparison import comparisons
from tests.helpers.cells import plan

MODELS = ["linear_attention", "deltanet", "gated_deltanet"]


def cells(*models: str, floats: object = 2000, form: str | None = None, **settings: object) -> list[Cell]:
    return plan(
        "mqar",
        list(models),
        preset="quick-hard",
        form=form,
        device="cpu",
        settings={"model.state_floats": floats, **settings},
    )


def state(cell: Cell) -> int:
    size = cell.model.build(cell.task, seed=0).state_size(cell.task.seq_len)
    assert size is not None
    return size.total


@pytest.mark.parametrize(
    "floats", [2000, *(pytest.param(floats, marks=pytest.mark.slow) for floats in (10_000, 200_000))]
)
def test_models_have_the_state_that_is_asked_for(floats: int) -> None:
    for cell in cells(*MODELS, "3xdeltanet+gated_deltanet", floats=floats, **{"model.heads": 2}):
        assert state(cell) == pytest.approx(floats, rel=0.05), cell.model.label


@pytest.mark.parametrize("floats", [2112, pytest.param(4736, marks=pytest.mark.slow)])
def test_models_have_the_recurrent_floats_that_are_asked_for(floats: int) -> None:
    """DeltaProduct has more convolutions than others, and linear attention a denominator."""
    models = ["deltanet", "gated_deltaproduct", "linear_attention", "deltanet+gated_deltanet"]
    found = recurrent_cells(*models, floats=floats)
    sizes = [cell.model.sketch(cell.task).state_size(64) for cell in found]
    assert [size and size.recurrent for size in sizes] == [pytest.approx(floats, rel=0.05)] * 4
    assert len({size.total for size in sizes if size}) > 1


def recurrent_cells(*models: str, floats: object, **settings: object) -> list[Cell]:
    """Return cells whose recurrences have so many floats."""
    sized = {"model.recurrent_floats": floats, "model.heads": 4, **settings}
    return plan("mqar", list(models), form="controlled", device="cpu", settings=sized)


@pytest.mark.parametrize(
    ("model", "settings", "sentence"),
    [
        (
            "deltanet",
            {"floats": 9},
            r"deltanet has no head dimension with 9 recurrent floats.*recurrent_floats",
        ),
        (
            "deltanet",
            {"floats": 1152, "model.head_dim": 8},
            r"model\.recurrent_floats chooses model\.head_dim",
        ),
        ("deltanet", {"floats": 1152, "model.state_floats": 9}, r"model\.state_floats and model\.recurrent_"),
        ("lstm", {"floats": 1152}, r"^lstm has no heads, so model\.recurrent_floats"),
    ],
)
def test_recurrent_floats_that_cannot_be_had_are_one_sentence(
    model: str, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        recurrent_cells(model, **settings)


def test_what_grows_has_no_recurrent_floats_to_choose() -> None:
    (sized,) = recurrent_cells("attention", floats=1152)
    (plain,) = plan("mqar", ["attention"], form="controlled", device="cpu", settings={"model.heads": 4})
    assert sized.id == plain.id


def test_the_nearest_is_taken() -> None:
    (cell,) = cells("deltanet")
    chosen = state(cell)
    dim = cell.model.layers[0].settings.head_dim  # type: ignore[attr-defined]
    for other in (dim - 1, dim + 1):
        (beside,) = plan(
            "mqar", ["deltanet"], preset="quick-hard", device="cpu", settings={"model.head_dim": other}
        )
        assert abs(state(beside) - 2000) >= abs(chosen - 2000)


def test_what_grows_with_the_length_stays_as_it_is() -> None:
    for form in ("controlled", "native"):
        (sized,) = cells("attention", form=form)
        (plain,) = plan("mqar", ["attention"], preset="quick-hard", device="cpu", form=form)
        assert sized.id == plain.id


def test_a_memory_of_levels_has_its_size_at_the_length_of_each_task() -> None:
    widths = []
    for length in (64, 512, 64):
        (cell,) = cells("log_linear_gdn", floats=20_000, **{"task.seq_len": length})
        assert state(cell) == pytest.approx(20_000, rel=0.05)
        widths.append(cell.model.layers[0].settings.head_dim)  # type: ignore[attr-defined]
    assert widths[0] == widths[2] > widths[1]


@pytest.mark.parametrize(("model", "step"), [("retnet", 2), ("deltanet[expand_v=1.25]", 4)])
def test_only_head_dimensions_that_a_model_can_have_are_asked_for(model: str, step: int) -> None:
    (cell,) = cells(model, floats=10_500, form="native")
    assert state(cell) == pytest.approx(10_500, rel=0.05)
    assert cell.model.layers[0].settings.head_dim % step == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("model", ["base_conv", "lstm", "mamba", "rwkv4", "h3", "./mine.py:Mine"])
def test_a_model_without_heads_is_told_so(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from torch import nn\nclass Mine(nn.Module):\n    def __init__(self, d_model):\n       "
        " super().__init__()\n"
    )
    with pytest.raises(UserError, match=f"^{re.escape(model)} has no heads, .*model.state_floats"):
        cells(model, form="native")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"floats": 9},
            (r"deltanet has no head dimension with 9 state floats within 5%: head_dim 1 has \d+; "),
        ),
        ({"floats": 830}, r"head_dim 6 has 720, head_dim 7 has 896"),
        ({"floats": "many"}, r"model\.state_floats .*at least 1.*many"),
        ({"model.head_dim": 8}, r"model\.state_floats chooses model\.head_dim"),
    ],
)
def test_sizes_that_cannot_be_had_are_one_sentence(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        cells("deltanet", **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "model", ["attention", "deltanet", "rwkv7", "gated_deltaproduct", "3xdeltanet+attention"]
)
def test_models_have_the_parameters_that_are_asked_for(model: str) -> None:
    (cell,) = cells(model, form="controlled", floats=3000, **{"model.heads": 2, "model.parameters": 150_000})
    built = cell.model.build(cell.task, seed=0)
    assert sum(p.numel() for p in built.parameters()) == pytest.approx(150_000, rel=0.05)
    assert (cell.model.backbone.channel_width or 1) % 8 == 0
    if "attention" not in model:
        assert state(cell) == pytest.approx(3000, rel=0.05)


def test_models_of_as_many_parameters_may_stand_side_by_side(a_result: Any) -> None:
    found = [
        a_result(label=label, around={"channel_width": width}, form="controlled")
        for label, width in (("deltanet", 96), ("retnet", 104))
    ]
    assert len(comparisons(found)) == 1


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"parameters": 1000},
            r"deltanet cannot have 1,000 parameters within 5%; .* [\d,]+",
        ),
        ({"parameters": "some"}, r"model\.parameters .*at least 1.*some"),
        (
            {"parameters": 10**5, "channel_width": 8},
            r"model\.parameters chooses model\.channel_width",
        ),
        (
            {"parameters": 10**5, "channel_mixer": "none"},
            r"model\.channel_mixer = none .*; use swiglu",
        ),
    ],
)
def test_parameters_that_cannot_be_had_are_one_sentence(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        plan(
            "mqar",
            ["deltanet"],
            preset="quick-hard",
            device="cpu",
            settings={f"model.{name}": value for name, value in settings.items()},
        )


def test_a_module_that_declares_no_state_has_no_size() -> None:
    with pytest.raises(UserError, match=r"does not declare its state"):
        plan("mqar", ["torch.nn:Identity"], device="cpu", settings={"model.state_floats": 100})
