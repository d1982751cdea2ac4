import pytest

from linbench.experiments.protocol import Protocol, default_protocol, published
from linbench.experiments.registry import registry
from linbench.tasks.base import Task

TASKS = ["in_context_recall", "noisy_recall", "fuzzy_recall", "selective_copy", "compression", "memorization"]


@pytest.mark.parametrize("name", TASKS)
def test_presets_are_trained_as_the_published_protocol_has_it(name: str) -> None:
    task: type[Task] = registry("task").find(name).cls
    presets = {which: preset for which, preset in task.presets.items() if which.startswith("mad")}
    assert len(presets) >= 2
    examples = 256 if name == "memorization" else 12_800
    wanted = Protocol.parse(
        {**default_protocol(), **published("mad"), "examples": examples}, where="protocol"
    )
    for preset in presets.values():
        assert Protocol.parse({**default_protocol(), **preset.protocol}, where="protocol") == wanted
        assert preset.model == {"layers": 2, "d_model": 128}
    assert not presets["mad"].task, "the defaults are the published baseline"
