"""The type of the result of a language model that was asked a task."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from linbench.results.schema.cells import Environment, Metrics, Slices, Task
from linbench.results.schema.fields import Count, Name, NotNegative, Share, Size, Whole


class PretrainedModel(TypedDict):
    digest: Name


class PretrainedIdentity(TypedDict):
    """All that decides the answers of a language model.

    tokens: a hash of the tokens that stand for the task's ids.
    """

    version: Whole
    task: Task
    model: PretrainedModel
    tokens: Name
    shots: Count
    answers: Literal["hidden", "written"]
    seed: Whole
    examples: Size
    precision: str
    device: Name


class PretrainedState(TypedDict):
    """Bytes that the model keeps for one sequence after so many tokens of a prompt."""

    recurrent: Count
    cache: Count
    tokens: Size


class PretrainedResult(TypedDict):
    """The answers of a model in figures.

    choices: number of allowed answers, of which the likeliest counts.
    """

    schema: NotRequired[Whole]
    kind: Literal["probe"]
    id: Name
    label: Name
    preset: str | None
    probe: PretrainedIdentity
    chance: Share
    optimum: Share
    scoring: Whole
    status: Literal["ok"]
    reason: str | None
    marks: list[str]
    metrics: Metrics
    slices: Slices
    choices: Size
    parameters: Size
    state: PretrainedState | None
    seconds: NotNegative
    environment: Environment
