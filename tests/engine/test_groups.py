from typing import Any

import pytest

from linbench.engine import groups as what
from linbench.engine.groups import groups, stack_size
from linbench.experiments.cell import Cell
from tests.helpers.cells import plan


def cells(model: str = "deltanet", seeds: tuple[int, ...] = (0, 1), **settings: object) -> list[Cell]:
    return plan(
        "mqar",
        [model],
        device="cpu",
        seeds=seeds,
        settings={name.replace("__", "."): value for name, value in settings.items()},
    )


def test_seeds_rates_and_weight_decays_of_one_structure_train_together() -> None:
    alike = cells() + cells(protocol__lr=1e-2) + cells(protocol__weight_decay=0.3)
    others = [
        cells(protocol__batch_size=16),
        cells(model__d_model=32),
        cells("linear_attention"),
        cells(task__kv_pairs=4),
        cells(protocol__clip=0.5),
    ]
    found = groups([*alike[:3], *(cell for other in others for cell in other), *alike[3:]], largest=100)
    assert found == [alike, *others]


def test_mixtures_and_tests_are_part_of_the_structure() -> None:
    def mixed(examples: int = 100, **more: Any) -> list[Cell]:
        return plan(
            "mqar",
            ["deltanet"],
            device="cpu",
            seeds=(0, 1),
            settings={"protocol.epochs": 2},
            train=[{"seq_len": 32, "examples": examples}],
            **more,
        )

    found = [mixed(), mixed(200), mixed(test=[{"kv_pairs": 4}]), mixed(test=[{"kv_pairs": 4}, {}])]
    assert groups([cell for some in found for cell in some], largest=100) == found


def test_the_longest_segment_decides_how_many_fit() -> None:
    def size(*lengths: int) -> int:
        settings = {"protocol.epochs": 2, "protocol.batch_size": 1}
        return stack_size(
            plan(
                "mqar",
                ["deltanet"],
                device="cpu",
                settings=settings,
                train=[{"seq_len": n, "examples": 9} for n in lengths],
            )[0]
        )

    assert [size(64), size(64, 256), size(256, 64), size(256)] == [16, 4, 4, 4]


@pytest.mark.parametrize(("largest", "sizes"), [(1, [1] * 5), (2, [2, 2, 1]), (5, [5])])
def test_no_group_is_larger_than_asked_for(largest: int, sizes: list[int]) -> None:
    assert [len(group) for group in groups(cells(seeds=(0, 1, 2, 3, 4)), largest=largest)] == sizes


def test_a_cpu_stacks_what_is_too_small_to_keep_it_busy() -> None:
    sizes = [stack_size(cells(protocol__batch_size=size)[0]) for size in (1, 4, 16, 32, 512)]
    assert sizes == [16, 4, 1, 1, 1]


def test_a_gpu_stacks_what_fits_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    class Properties:
        total_memory = 1 << 33

    monkeypatch.setattr(what.torch.cuda, "get_device_properties", lambda device: Properties)
    on_cpu = [cells(protocol__batch_size=size)[0] for size in (32, 512, 4096, 1 << 20)]
    on_gpu = [Cell(cell.task, cell.task_entry, cell.model, cell.protocol, 0, "cuda:0") for cell in on_cpu]
    sizes = [stack_size(cell) for cell in on_gpu]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[1] > 1
    assert sizes[-1] == 1
    (cell,) = cells(seeds=(0,), protocol__batch_size=512)
    shared = Cell(cell.task, cell.task_entry, cell.model, cell.protocol, 0, "cuda:0")
    assert [stack_size(shared, sharing=count) for count in (1, 2, 1 << 20)] == [sizes[1], sizes[1] // 2, 1]
