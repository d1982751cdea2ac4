import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from syrupy.assertion import SnapshotAssertion

from linbench.cli import completion
from linbench.common.errors import UserError
from linbench.experiments import suites
from linbench.experiments.learning_rates import default_search
from linbench.experiments.protocol import Protocol, default_protocol
from linbench.experiments.suite import Suite, expand, load, narrow, shipped
from linbench.tasks.forgetting_mqar import ForgettingMQAR

SMALL: dict[str, Any] = {"about": "a test", "tasks": ["mqar"], "models": ["deltanet", "attention"]}


def suite(**more: Any) -> Suite:
    return Suite.parse(SMALL | more, where="suite")


def expanded(**more: Any) -> list[tuple[str, int, dict[str, Any]]]:
    """Model, seed and all settings of every cell."""
    cells = expand(suite(**more), device="cpu").cells
    return [
        (
            c.model.label,
            c.seed,
            {
                "form": c.model.form,
                **c.task.settings.model_dump(),
                **c.model.backbone.model_dump(),
                **c.protocol.model_dump(),
            },
        )
        for c in cells
    ]


def test_a_grid_is_every_task_model_point_and_seed_once() -> None:
    found = expanded(
        tasks=["mqar", "mqar/quick-hard"],
        grid={"model.d_model": [32, 64], "protocol.lr": [1e-3, 1e-2]},
        seeds="0-2",
    )
    assert len(found) == 2 * 2 * 4 * 3
    assert len({(label, seed, s["kv_pairs"], s["d_model"], s["lr"]) for label, seed, s in found}) == len(
        found
    )


def test_models_without_the_form_that_is_asked_for_are_left_out_and_named(
    snapshot: SnapshotAssertion,
) -> None:
    found = expand(
        suite(
            tasks=["mqar/quick", "mqar/quick-hard"], models=["deltanet", "base_conv", "base_conv+deltanet"]
        ),
        device="cpu",
    )
    assert Counter((cell.model.label, cell.model.form) for cell in found.cells) == {
        ("deltanet", "native"): 1,
        ("base_conv", "native"): 1,
        ("base_conv+deltanet", "native"): 1,
        ("deltanet", "controlled"): 1,
    }
    assert found.missing == snapshot
    assert expand(suite(models=["base_conv"], form="controlled"), device="cpu").cells == []


def test_a_task_stands_in_the_form_it_names_or_in_that_of_the_suite_or_in_the_one_asked_for() -> None:
    both = suite(
        tasks=["mqar/quick", {"task": "mqar/quick", "form": "native"}, "mqar/quick-hard"],
        models=["deltanet"],
        form="controlled",
    )

    def forms(suite: Suite) -> list[tuple[int, str]]:
        return [
            (cell.task.settings.model_dump()["kv_pairs"], cell.model.form)
            for cell in expand(suite, device="cpu").cells
        ]

    assert forms(both) == [(8, "controlled"), (8, "native"), (16, "controlled")]
    assert forms(narrow(both, form="native")) == [(8, "native"), (16, "native")]


def test_a_suite_narrowed_to_some_models_loses_the_settings_of_the_others() -> None:
    given = suite(
        tasks=[{"task": "mqar", "set": {"model.forget_bias": 2.0, "model.layers": 1}}],
        models=["deltanet", "gau", "fox"],
        set={"model.heads": 2, "protocol.lr": 0.01},
    )
    narrowed = narrow(given, models=["gau"])
    assert narrowed.set == {"protocol.lr": 0.01}
    assert narrowed.tasks[0].set == {"model.layers": 1}
    assert narrow(given, models=["gau", "fox"]).set == given.set
    of_one = given.model_copy(update={"set": {"model.fox.forget_bias": 2.0, "model.gau.key_dim": 64}})
    assert narrow(of_one, models=["gau"]).set == {"model.gau.key_dim": 64}
    assert narrow(of_one, models=["deltanet"]).set == {}
    misspelt = given.model_copy(update={"set": {"model.haeds": 2}})
    with pytest.raises(UserError, match=r"model\.haeds"):
        expand(narrow(misspelt, models=["gau"]))


@pytest.mark.slow
def test_models_without_heads_are_left_out_and_named_where_all_are_sized(snapshot: SnapshotAssertion) -> None:
    models = ["deltanet", "lstm", "base_conv+deltanet", {"model": "rwkv4", "set": {"model.d_model": 32}}]
    sized = {"task": "mqar", "set": {"model.state_floats": 2048}}
    found = expand(suite(models=models, tasks=["mqar/quick", sized]), device="cpu")
    assert Counter(cell.model.label for cell in found.cells) == {
        "deltanet": 2,
        "lstm": 1,
        "base_conv+deltanet": 2,
        "rwkv4": 1,
    }
    assert found.missing == snapshot


def test_what_is_set_for_all_for_a_task_and_for_a_model_reaches_just_these() -> None:
    found = expanded(
        tasks=["mqar", {"task": "mqar", "set": {"task.seq_len": 128, "protocol.batch_size": 8}}],
        models=["attention", {"model": "deltanet", "set": {"model.d_model": 32, "protocol.lr": 0.5}}],
        set={"protocol.clip": 0.25},
        form="controlled",
    )
    chosen = {(label, s["seq_len"], s["batch_size"], s["d_model"], s["lr"]) for label, _, s in found}
    assert chosen == {
        ("attention", 64, 32, 64, 5e-3),
        ("attention", 128, 8, 64, 5e-3),
        ("deltanet", 64, 32, 32, 0.5),
        ("deltanet", 128, 8, 32, 0.5),
    }
    assert {(s["clip"], s["form"]) for _, _, s in found} == {(0.25, "controlled")}


def test_a_task_has_a_mixture_to_train_on_and_several_tests() -> None:
    mixed = {
        "task": "mqar",
        "set": {"task.vocab_size": 64},
        "train": [{"seq_len": 32, "examples": 100}, {"examples": 50}],
        "test": [{"kv_pairs": 4}, {}],
    }
    cells = expand(suite(tasks=["mqar", mixed], protocol="zoology"), device="cpu").cells
    assert [(len(cell.segments), len(cell.tests)) for cell in cells] == [(0, 0)] * 2 + [(2, 2)] * 2
    assert [
        (s.task.settings.seq_len, s.task.settings.vocab_size, s.examples) for s in cells[-1].segments
    ] == [(32, 64, 100), (64, 64, 50)]
    assert [test.settings.kv_pairs for test in cells[-1].tests] == [4, 8]
    assert cells[-1].protocol.examples == 150, "and not zoology's"


def test_a_published_protocol_by_name() -> None:
    (_, _, settings), *_ = expanded(protocol="zoology")
    assert (settings["epochs"], settings["stop_at"], settings["clip"], settings["decay"]) == (
        64,
        0.99,
        None,
        "all",
    )


def test_a_precision_of_your_own_is_that_of_every_cell() -> None:
    mixed = suite(
        models=["deltanet", {"model": "attention", "set": {"protocol.precision": "bf16"}}],
        set={"protocol.precision": "bf16"},
    )
    assert {cell.protocol.precision for cell in expand(mixed, device="cpu").cells} == {"bf16"}
    assert {cell.protocol.precision for cell in expand(mixed, precision="fp32", device="cpu").cells} == {
        "fp32"
    }


def test_a_search_is_as_by_default_but_for_what_is_said() -> None:
    assert (suite().search, suite(search=False).search, suite(search=True).search) == (
        None,
        None,
        default_search(),
    )
    assert suite(search={"seeds": [7]}).search == default_search().model_copy(update={"seeds": (7,)})
    for wrong, sentence in (
        ({"rates": 3}, "suite.search.rates = 3: input should be greater than or equal to 5."),
        ({"seed": [7]}, "unknown setting 'suite.search.seed'; did you mean 'suite.search.seeds'"),
        ("often", "suite.search = often: input should be a valid dictionary"),
    ):
        with pytest.raises(UserError) as refused:
            suite(search=wrong)
        assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(
    "given",
    [
        {"set": {"protocol.lr": 0.5}},
        {"grid": {"protocol.lr": [0.5]}},
        {"tasks": [{"task": "mqar", "set": {"protocol.lr": 0.5}}]},
        {"models": ["attention", {"model": "deltanet", "set": {"protocol.lr": 0.5}}]},
    ],
)
def test_a_rate_beside_a_search_is_refused_unless_it_is_published(given: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"protocol\.lr = .*0\.5.* searched for"):
        expand(suite(search=True, **given), device="cpu")
    assert expand(suite(search=True, protocol="zoology"), device="cpu").cells


def test_the_suite_in_the_guide_is_one() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "usage.md").read_text(encoding="utf-8")
    (text,) = [block for block in guide.split("```yaml\n")[1:] if block.startswith("about:")]
    assert expand(Suite.parse(yaml.safe_load(text.partition("```")[0]), where="suite"), device="cpu").cells


def test_the_same_cell_asked_for_twice_is_one() -> None:
    assert len(expanded(models=["deltanet", "deltanet"], seeds=[0, 0])) == 1


def test_what_is_not_installed_is_named_and_the_rest_goes_on() -> None:
    found = expand(
        suite(tasks=["mqar", "no_such_task"], models=["deltanet", "3xdeltanet+no_such_model"]), device="cpu"
    )
    assert [cell.model.label for cell in found.cells] == ["deltanet"]
    assert set(found.missing) == {"task no_such_task", "model no_such_model"}
    assert "unknown task 'no_such_task'" in found.missing["task no_such_task"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"modles": ["deltanet"]}, r"unknown setting 'suite\.modles'; did you mean 'suite\.models'\?"),
        ({"tasks": []}, r"suite\.tasks"),
        ({"tasks": [{"task": "mqar", "train": [{"kv_pairs": 4}]}]}, r"train\.0\.examples is missing"),
        ({"tasks": [{"task": "mqar", "train": [4]}]}, r"suite\.tasks\.0\.train\.0 = 4: "),
        ({"tasks": [{"task": "mqar", "sets": {}}]}, r"unknown setting 'suite\.tasks\.0\.sets'"),
        (
            {"set": {"model.d_model": 8}, "grid": {"model.d_model": [8]}},
            r"suite: model\.d_model .* set and in grid",
        ),
        ({"grid": {"model.d_model": []}}, r"suite: grid\.model\.d_model has no values"),
        ({"set": {"model.hedas": 8}}, r"unknown setting 'model\.hedas'"),
        ({"models": [{"model": "deltanet", "set": {"model.hedas": 8}}]}, r"unknown setting 'model\.hedas'"),
        (
            {"models": [{"model": "deltanet", "set": {"task.kv_pairs": 8}}]},
            "a model cannot have task settings of its own",
        ),
        ({"seeds": "a"}, "such as 0,1,2 or 0-4, not 'a'"),
        ({"protocol": "zoolgy"}, "unknown protocol 'zoolgy'; did you mean 'zoology'?"),
    ],
)
def test_bad_suites_are_one_sentence(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        expand(suite(**change), device="cpu")


def test_a_suite_is_a_file_or_a_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(SMALL))
    assert load(str(path)) == suite()
    assert load("quick").about == shipped()["quick"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[", "is not YAML"),
        ("about: a\nabout: b", "is not YAML: about is given twice"),
        ("- a", "must be a mapping"),
        (None, "cannot read the suite"),
    ],
)
def test_a_file_that_is_no_suite(tmp_path: Path, text: str | None, sentence: str) -> None:
    path = tmp_path / "mine.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=sentence):
        load(str(path))


def test_a_name_that_is_no_suite() -> None:
    with pytest.raises(UserError, match=r"unknown suite .quik.; did you mean .quick.\?"):
        load("quik")
    with pytest.raises(UserError, match="unknown suite 'protocol'"):
        load("protocol")


def test_zoology_is_surrounded_as_published() -> None:
    figure = load("zoology-figure2")
    grid = {**figure.grid, "model.d_model": (64,), "protocol.lr": (1e-3,)}
    few = figure.model_copy(update={"tasks": figure.tasks[:1], "models": figure.models[:1], "grid": grid})
    (cell,) = expand(few, device="cpu").cells
    surroundings = {
        "d_model": 64,
        "layers": 2,
        "norm": "layer",
        "channel_mixer": "identity",
        "tie_embeddings": True,
        "embedding_dropout": 0.1,
    }
    assert cell.model.identity()["backbone"]["settings"] == surroundings


@pytest.mark.slow
def test_based_is_the_published_mixture() -> None:
    figure = load("based-figure2")
    few = figure.model_copy(
        update={"models": figure.models[-1:], "grid": {"model.d_model": (64,), "protocol.lr": (1e-3,)}}
    )
    (cell,) = expand(few, device="cpu").cells
    train = [(s.task.settings.seq_len, s.task.settings.kv_pairs, s.examples) for s in cell.segments]
    assert train == [
        (64, 4, 100_000),
        (128, 8, 20_000),
        (256, 16, 20_000),
        (256, 32, 20_000),
        (256, 64, 20_000),
    ]
    pairs = [(test.settings.seq_len, test.settings.kv_pairs) for test in cell.tests]
    assert pairs == [(64, 4), (64, 8), (64, 16), (128, 32), (256, 64), (512, 128), (1024, 256)]
    assert {
        (task.settings.vocab_size, task.settings.filler)
        for task in [*cell.tests, *(s.task for s in cell.segments)]
    } == {(8192, "published")}
    assert cell.steps == 32 * 707
    assert cell.curriculum.tokens(707) == pytest.approx(24.3e6, rel=1e-2), (
        "an epoch as published, but for batches filled up"
    )
    mixer = cell.model.layers[1].settings
    assert (mixer.heads, mixer.expand_k, mixer.expand_v, mixer.conv) == (2, 1.0, 2.0, 0)  # type: ignore[attr-defined]
    assert {model.model.partition("[")[0].partition("+")[0] for model in figure.models} == {"base_conv"}


@pytest.mark.slow
def test_forgetting_is_trained_on_the_published_mixture_and_tested_up_to_the_longest() -> None:
    figure = load("zoology-forgetting")
    few = figure.model_copy(
        update={"models": figure.models[-1:], "grid": {"model.d_model": (64,), "protocol.lr": (1e-3,)}}
    )
    (cell,) = expand(few, device="cpu").cells
    train = [(64, 4, 100_000), (128, 9, 20_000), (256, 16, 20_000), (256, 25, 20_000), (256, 36, 20_000)]
    assert [(s.task.settings.seq_len, s.task.settings.kv_pairs, s.examples) for s in cell.segments] == train
    presets = ForgettingMQAR.presets
    assert [presets[f"zoology-{length}-{pairs}"].task for length, pairs, _ in train] == [
        s.task.settings.model_dump(exclude_unset=True) for s in cell.segments
    ]
    tests = [(test.settings.seq_len, test.settings.kv_pairs) for test in cell.tests]
    assert tests == [*((length, pairs) for length, pairs, _ in train), (512, 64), (1024, 128), (2048, 256)]
    assert {
        (task.settings.vocab_size, task.settings.updates)
        for task in [*cell.tests, *(s.task for s in cell.segments)]
    } == {(8192, 4)}
    alone = Protocol.parse({**default_protocol(), **presets["zoology-64-4"].protocol}, where="protocol")
    changed = {"lr", "examples", "validation_examples", "test_examples"}
    assert cell.protocol.model_dump(exclude=changed) == alone.model_dump(exclude=changed), (
        "as each of its parts is trained alone"
    )
    assert figure.grid["protocol.lr"] == (1e-3, 3.16e-3, 1e-2, 3.16e-2)


@pytest.mark.slow
def test_mamba2_is_the_published_curriculum() -> None:
    suite_ = load("mamba2-mqar")
    assert len(suite_.tasks) * len(suite_.models) * len(suite_.grid["protocol.lr"]) == 3 * 4 * 4 * 3
    cells = expand(
        suite_.model_copy(update={"models": suite_.models[1:], "grid": {"protocol.lr": (1e-2,)}}),
        device="cpu",
    ).cells
    for cell in cells:
        task, width = cell.task.settings, cell.model.backbone.d_model
        assert [(s.task.settings.seq_len, s.task.settings.kv_pairs) for s in cell.segments] == [
            (task.seq_len, task.seq_len // k) for k in (32, 16, 8, 4)
        ]
        assert {s.examples for s in cell.segments} == {1 << 18}
        assert (task.kv_pairs, task.vocab_size, task.filler) == (task.seq_len // 4, 8192, "published")
        assert cell.protocol.batch_size * task.seq_len == 1 << 18, "tokens in a batch"
        assert cell.steps == 8 * 4 * task.seq_len
        mixer = cell.model.sketch(cell.task).mixers[0]
        heads, state, value = mixer.memory_shape  # type: ignore[union-attr, misc]
        assert (value, heads * value) == (64, 2 * width)
        assert str(state) in cell.model.label
    assert {(cell.task.settings.seq_len, cell.model.backbone.d_model) for cell in cells} == {
        (t, d) for t in (256, 512, 1024) for d in (32, 64, 128, 256)
    }


@pytest.mark.slow
def test_mad_is_the_66_published_settings() -> None:
    figure = load("mad")
    assert {name: len(values) for name, values in figure.grid.items()} == {
        "protocol.lr": 3,
        "protocol.weight_decay": 2,
    }, "396 runs of each model"
    few = figure.model_copy(update={"models": figure.models[:1], "grid": {"protocol.lr": (1e-3,)}})
    cells = expand(few, device="cpu").cells
    assert Counter(cell.task_entry.name for cell in cells) == {
        "in_context_recall": 11,
        "noisy_recall": 14,
        "fuzzy_recall": 11,
        "selective_copy": 13,
        "compression": 11,
        "memorization": 6,
    }
    changed = []
    for cell in cells:
        baseline = cell.task.Settings().model_dump()
        examples = 256 if cell.task_entry.name == "memorization" else 12_800
        changed.append(
            {name for name, value in cell.task.settings.model_dump().items() if value != baseline[name]}
        )
        changed[-1] |= {"examples"} if cell.protocol.examples != examples else set()
        assert (
            cell.model.backbone.layers,
            cell.model.backbone.d_model,
            cell.protocol.batch_size,
            cell.protocol.epochs,
        ) == (2, 128, 128, 200)
    assert Counter(map(len, changed)) == {0: 6, 1: 60}, "one thing at a time"


def test_what_a_suite_sets_is_what_it_says_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "from torch import nn\nclass Mine(nn.Module):\n    def __init__(self, dim, **more):\n       "
        " super().__init__()\n"
    )
    values = "a: no, b: 1:30, c: 2024-01-01, d: 1e-5, e: 8, f: true, g: null, h: on, i: 1.0e-3"
    given = "".join(f"  model.{pair.strip()}\n" for pair in values.split(","))
    Path("mine.yaml").write_text(f"about: mine\ntasks: [mqar]\nmodels: [./mine.py:Mine]\nset:\n{given}")
    (cell,) = expand(load("mine.yaml"), device="cpu").cells
    expected = {
        "a": "no",
        "b": "1:30",
        "c": "2024-01-01",
        "d": 1e-5,
        "e": 8,
        "f": True,
        "g": None,
        "h": "on",
        "i": 1e-3,
    }
    assert cell.model.layers[0].settings.model_dump(exclude_unset=True) == expected
    Path("mine.yaml").write_text(
        "about: mine\ntasks: [mqar]\nmodels: [./mine.py:Mine]\nset: {model.a: 010}\n"
    )
    with pytest.raises(UserError, match=r"^model\.a = 010: .*in quotes such as '010'\.$"):
        expand(load("mine.yaml"), device="cpu")


def test_a_suite_is_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linbench: Callable[..., Any]
) -> None:
    (tmp_path / "zebra.yaml").write_text("about: stripes\ntasks: [mqar/quick]\nmodels: [deltanet]\n")
    monkeypatch.setattr(suites, "__path__", [*suites.__path__, str(tmp_path)])
    assert shipped()["zebra"] == "stripes"
    assert completion.suites("zeb") == ["zebra"]
    assert "zebra\tstripes" in linbench("list", "suites").out
    planned = linbench(
        "sweep", "zebra", "--dry-run", "--device", "cpu", "--json", "--results", tmp_path / "results"
    )
    assert len(json.loads(planned.out)["cells"]) == len(expand(load("zebra"), device="cpu").cells) == 1


@pytest.mark.slow
def test_capacity_raises_the_pairs_at_one_number_of_recurrent_floats() -> None:
    suite_ = load("capacity")
    assert [model.model for model in suite_.models] == [model.model for model in load("zoo").models]
    few = suite_.model_copy(update={"models": suite_.models[3:18:7], "seeds": "0"})
    for cell in expand(few, device="cpu").cells:
        tests = [(test.settings.seq_len, test.settings.kv_pairs) for test in cell.tests]
        assert tests == [(4 * pairs, pairs) for pairs in (16, 32, 64, 128, 256, 512)]
        trained = [segment.task.settings for segment in cell.segments]
        assert [(task.seq_len, task.kv_pairs) for task in trained] == [(64, 4), *tests]
        size = cell.model.sketch(cell.task).state_size(64)
        assert size is not None
        assert size.recurrent == pytest.approx(2112, rel=0.05)
        assert cell.curriculum.tokens(cell.steps) == pytest.approx(11e6, rel=0.01)
        assert cell.steps == 2_944, "as the file says"
        assert (cell.protocol.rungs, cell.protocol.fresh) == (6, True)


def test_capacity_quick_is_short_first_and_tested_beyond() -> None:
    cells = expand(load("capacity-quick"), device="cpu").cells
    assert len(cells) == 15
    trained = [segment.task.settings.kv_pairs for segment in cells[0].segments]
    assert (trained, [test.settings.kv_pairs for test in cells[0].tests]) == (
        [4, 8, 16, 32],
        [4, 8, 16, 32, 64],
    )
    assert (cells[0].steps, cells[0].curriculum.tokens(cells[0].steps)) == (
        1050,
        pytest.approx(1.7e6, rel=0.01),
    )


def test_similarity_is_trained_on_every_cosine_in_turn_with_room_for_all_keys() -> None:
    cells = expand(load("similarity"), device="cpu").cells
    assert len(cells) == 9
    for cell in cells:
        for parts in ([segment.task for segment in cell.segments], cell.tests):
            assert [part.settings.similarity for part in parts] == [0.0, 0.3, 0.6, 0.9]
        assert (cell.curriculum.batches, cell.protocol.fresh, cell.steps) == ((1, 1, 1, 1), True, 1600)
        task, layer = cell.task.settings, cell.model.layers[0].settings
        assert cell.model.backbone.d_model >= 2 * task.dim
        assert layer.head_dim >= task.dim >= task.kv_pairs
        assert (layer.conv, layer.qk_activation, layer.feature_map) == (0, "none", "identity")


@pytest.mark.slow
def test_the_suite_and_the_task_of_one_name_are_told_apart(linbench: Callable[..., Any]) -> None:
    """`sweep` takes the suite, `run` and `show task` the task."""
    assert "capacity" in completion.suites("cap")
    assert "capacity" in completion.tasks("cap")
    planned = linbench("sweep", "capacity", "--dry-run", "--device", "cpu", "--only", "deltanet")
    assert planned.code == 0, planned.err
    assert "mqar deltanet" in planned.out
    card = linbench("show", "task", "capacity").out
    suites_listed = linbench("list", "suites").out
    (line,) = (line for line in suites_listed.splitlines() if line.startswith("capacity\t"))
    assert "mqar" in line
    assert "linbench sweep capacity" in card
