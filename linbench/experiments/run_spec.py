"""The specification of a run: everything a user says about it, by names and settings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One task with some models and seeds, as `linbench run`, a block of a suite or `linbench.run` names it.

    Settings have dotted names: `task.NAME`, `protocol.NAME`, `model.NAME` for the backbone or any mixer that
    has it, and `model.MIXER.NAME` for one mixer. `model.state_floats` sizes every model whose state does not
    grow with the length, and `model.parameters` sizes every model. What the user sets overrides the published
    protocol, which overrides the preset, which overrides the defaults.

    Args:
        task: a task's name, or `./file.py:Class`, or `package.module:Class`.
        models: layer patterns, one for each model.
        preset: a preset of the task; without one its first.
        form: native or controlled; without one that of the preset, else native.
        protocol: the name of a published protocol.
        seeds: one cell for each model and each of these.
        settings: settings of the task, the protocol and all models.
        model_settings: for each model alone more settings of its protocol and itself; None: no model has any.
        train: segments of a training mixture. Each holds settings of the task by their bare names, which
            override the task's own, and its number of `examples`; their sum becomes `protocol.examples`.
        test: for every test settings of the task by their bare names.
        test_lengths: adds a test at each of these multiples of the task's length.
        device: auto, cpu, cuda or cuda:N.
    """

    task: str
    models: Sequence[str]
    preset: str | None = None
    form: str | None = None
    protocol: str | None = None
    seeds: Iterable[int] = (0,)
    settings: Mapping[str, Any] = field(default_factory=dict)
    model_settings: Sequence[Mapping[str, Any]] | None = None
    train: Sequence[Mapping[str, Any]] = ()
    test: Sequence[Mapping[str, Any]] = ()
    test_lengths: Sequence[int] = ()
    device: str = "auto"

    def __post_init__(self) -> None:
        """Read the seeds once, so that a generator of seeds does not run dry."""
        object.__setattr__(self, "seeds", tuple(int(seed) for seed in self.seeds))

    @property
    def settings_of_each_model(self) -> Sequence[Mapping[str, Any]]:
        """Settings of each model alone, in the order of `models`."""
        if self.model_settings is None:
            return [{}] * len(self.models)
        return self.model_settings
