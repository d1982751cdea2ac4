"""Sentences and numbers in words that tables and figures share."""

from collections.abc import Iterable, Mapping

from linbench.common.text import pluralize
from linbench.experiments.floors import Floor, stored_floor
from linbench.experiments.labels import distinguishing_labels
from linbench.experiments.sizing import TOLERANCE
from linbench.results.comparison import Comparison
from linbench.results.record import learning_rate_of, seed_of
from linbench.results.reliability import RELIABLE_FROM, reliability
from linbench.results.schema import Result
from linbench.results.schema.cells import ProtocolSettings, Task
from linbench.results.slices import slices
from linbench.results.speed_labels import AS_CALLED, REPLAYED
from linbench.results.speeds import Rate

TITLES = {"train": "Training", "prefill": "Prompts", "decode": "Decoding", "memory": "Memory"}
"""Titles of what is measured of layers, by question."""

NOTES = {
    "train": "Forward and backward of one layer, with gradients for its input and every parameter.",
    "prefill": "Forward of one layer from an empty state, without gradients; the state at the end is kept.",
    "decode": (
        "One more token for every sequence, from the state that so many tokens before it have left, without"
        " gradients."
    ),
    "memory": (
        "Peak: the most memory that forward and backward take beyond weights and input. On a CPU only tensors"
        " that torch holds count, not what its operators use while they work. State: the bytes of the tensors"
        " that one sequence of that length leaves behind."
    ),
}
"""Explanations of what is measured of layers, by question."""

TIMING = {
    REPLAYED: "Device time of calls replayed from a CUDA graph; caches are overwritten before each.",
    AS_CALLED: (
        "Wall-clock time from the call until the device is done; a GPU's caches are overwritten before each."
    ),
}
"""Explanations of how calls are timed."""

GROWTH = (
    "Growth is the exponent e if the time of a sequence grows as its length to the power e, fitted over all"
    " lengths; for decoding, it is that of the time of a token."
)

ROOFLINE = (
    "kFLOP and bytes are the least that a token needs at the greatest length. Roofline is the least time for"
    " these (at the rate of a matrix product and of a copy in the same run, whichever takes longer) over the"
    " measured time. First call is the longest of all first calls, with compilation; on a GPU others compiled"
    " meanwhile."
)

FORMS = {
    "native": (
        "Native form: each model in its published parameterisation, so that more than the recurrence differs."
    ),
    "controlled": (
        "Controlled form: the same convolution, norms and channel mixer for all; only the recurrence differs."
    ),
}
"""Explanations of the forms of models."""

SEED_LINES = (
    "A thick line is the mean over seeds, and a thin line is one seed. A band reaches from the worst seed"
    " to the best; there is none if it would cover other models."
)
"""The explanation of lines with their spread over seeds, in captions."""

SEED_BARS = "A mark is the mean over seeds, and its bar reaches from the worst seed to the best."
"""The explanation of marks with their spread over seeds, in captions."""

HOLLOW = (
    "A model with a hollow mark takes part in no verdict: it was undertrained, or its learning rate is in"
    " doubt."
)
"""The explanation of hollow marks, in captions."""

SHADES = "Each generation of models has a colour, and each model of it a shade."
"""The explanation of colours, in captions."""

QUANTITIES = {
    "distance": "tokens between what is asked and its answer",
    "doublings": "doublings of the distance, in tokens",
    "overwrites": "how often the value had been overwritten",
    "slot": "place of the question, 0 nearest to the pairs",
    "writes_between": "writes of other keys in between",
    "recall": "recall, from chance (0) to perfect (1)",
    "parity length": "place in the sequence: bits up to the answer",
    "accuracy": "test accuracy",
    "stale": "answers that are an older value",
}
"""Labels of slices and metrics whose names do not say what they are. A slice whose name means something else
in a task has the task before its name."""


def three_digits(value: float) -> str:
    """Return a number with about three digits: 1,234 or 123 or 12.3 or 0.0123."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


def million_tokens(tokens: float) -> str:
    """Return a number of tokens in millions, with about three digits."""
    return f"{three_digits(tokens / 1e6)} M" if tokens else "0"


def thousands(rate: Rate) -> str:
    """Return a rate in thousand tokens per second, with its spread in per cent."""
    return f"{three_digits(rate.median / 1e3)} ± {rate.spread:.0%}"


def accuracy_words(mean: float | None, spread: float | None) -> str:
    """Return an accuracy as mean ± standard deviation over seeds, or a dash where there is none."""
    if mean is None:
        return "–"
    return f"{mean:.3f}" if spread is None else f"{mean:.3f} ± {spread:.3f}"


def probability(p: float) -> str:
    """Return a p-value with three decimals; a small one is never shown as zero."""
    return f"{p:.3f}" if p >= 0.0005 else "<0.001"


def equal(p: float) -> str:
    """Return a p-value as it follows the letter p: `= 0.012`, `< 0.001`."""
    words = probability(p)
    return f"< {words[1:]}" if words.startswith("<") else f"= {words}"


def commits(results: Iterable[Result]) -> str:
    """Return the commits of the code that measured some results, or the version where no commit is known."""
    return ", ".join(sorted({_commit(result) for result in results}))


def _commit(result: Result) -> str:
    found = result["environment"]
    if not found["commit"]:
        return f"linbench {found['packages'].get('linbench', 'from source')}"
    return f"commit {found['commit'][:10]}{' with changes' if found['dirty'] else ''}"


def setting(comparison: Comparison) -> str:
    """Return what a figure of a comparison says of its setting: task, training, device and chance level."""
    return f"{training(comparison)} Chance is {comparison.results[0]['chance']:.3f}."


def training(comparison: Comparison) -> str:
    """Return the task of a comparison, how its models were trained, on what, and how alike they are."""
    first = comparison.results[0]
    protocol, task = first["cell"]["protocol"]["settings"], _task(first["cell"]["task"])
    model = ", ".join(f"{name} {value}" for name, value in comparison.shared_settings.items())
    rates = ", ".join(map(str, sorted({learning_rate_of(result) for result in comparison.results})))
    seeds = sorted({seed_of(result) for result in comparison.results})
    seed_words = f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"
    form = FORMS.get(comparison.form, f"{comparison.form} form.")
    return (
        f"{comparison.title} ({task}); training: {_budget(comparison, protocol)} in batches of"
        f" {protocol['batch_size']}, learning rate {rates}{_search(comparison)}, {protocol['precision']}; all"
        f" models have {model}; {seed_words}; {comparison.device}; {commits(comparison.results)}."
        f" {form}{_matching(comparison)}{_floor(first['cell']['task'])}{_reliability(comparison)}"
    )


def _reliability(comparison: Comparison) -> str:
    """Return a sentence on the reliability of a comparison, if single runs do not tell its models apart."""
    found = reliability([row.accuracies for row in comparison.rows])
    if found is None or found.reliable:
        return ""
    return (
        f" Reliability is {found.one:.2f} [{found.low:.2f}, {found.high:.2f}], below {RELIABLE_FROM:g}: seeds"
        " of one model differ too much for single runs to tell models apart."
    )


def _floor(task: Task) -> str:
    """Return a sentence on the floor of a task, if a shallow baseline scores well on it."""
    floor = _high_floor(task)
    return f" {floor.warning}." if floor else ""


def floors_of(tasks: Mapping[str, Task]) -> str:
    """Return a sentence for each task on which a shallow baseline scores well; tasks are by their titles."""
    found = {title: floor for title, task in tasks.items() if (floor := _high_floor(task))}
    return "".join(f" {title}: {floor.warning}." for title, floor in found.items())


def _high_floor(task: Task) -> Floor | None:
    """Return the highest floor of a task's tests that is above chance; None if there is none."""
    settings = [part["settings"] for part in task.get("test", [])] or [task["settings"]]
    floors = [floor for each in settings if (floor := stored_floor({**task, "settings": each}))]
    high = [floor for floor in floors if floor.verdict != "passes"]
    return max(high, key=lambda floor: floor.level, default=None)


def _task(task: Task) -> str:
    """Return the settings of a task; of several mixtures those that all share, then those of each."""
    train, test = task.get("train", []), task.get("test", [])
    trained_on = [part["settings"] for part in train] or [task["settings"]]
    tested_on = [part["settings"] for part in test] or [task["settings"]]
    parts = [*trained_on, *tested_on]
    shared = ", ".join(
        f"{name} {value}"
        for name, value in parts[0].items()
        if all(part.get(name) == value for part in parts)
    )
    words = distinguishing_labels(parts)
    if not words[0]:
        return shared
    examples = [f" ({part['examples']:,} examples)" for part in train] or [""]
    trained = [own + size for own, size in zip(words, examples, strict=False)]
    tested = words[len(trained_on) :]
    common = [shared] if shared else []
    return "; ".join([*common, f"trained on {', '.join(trained)}", f"tested on {', '.join(tested)}"])


def _budget(comparison: Comparison, protocol: ProtocolSettings) -> str:
    """Return the amount of training in words."""
    examples, epochs = protocol.get("examples"), protocol.get("epochs")
    of = f" of {examples:,} examples" if examples else ""
    base = f"{epochs} epochs{of}" if epochs else f"{_base_tokens(comparison, protocol):,} tokens{of}"
    rungs = max((result["ladder"]["most"] for result in comparison.results if "ladder" in result), default=1)
    if rungs == 1:  # what more training would bring is not known
        return f"one budget of {base}"
    return f"{base}, doubled up to {pluralize(rungs - 1, 'time')} until learned,"


def _base_tokens(comparison: Comparison, protocol: ProtocolSettings) -> int:
    """Return the tokens of the base budget: those asked for, or more if a step for each validation took more.

    A budget is a whole number of steps, so by less than a step they are not more.
    """
    asked: int = protocol["tokens"]
    doublings = protocol.get("doublings", 0)
    for last in (result["curve"][-1] for result in comparison.results if result["curve"]):
        trained = last["tokens"] >> doublings
        if trained - asked > last["tokens"] / last["step"]:
            return trained
    return asked


def _search(comparison: Comparison) -> str:
    """Return how learning rates were chosen, or nothing where they were given."""
    found = [result["search"] for result in comparison.results if result["search"]]
    if not found:
        return ""
    tried = [rate for search in found for rate, _ in search["accuracies"]]
    rates = sorted({rate for rate in tried if rate is not None})
    seeds = sorted({seed for search in found for seed in search["seeds"]})
    return (
        f" (chosen by validation on seeds {', '.join(map(str, seeds))} among {rates[0]:g} to {rates[-1]:g})"
    )


def _matching(comparison: Comparison) -> str:
    """Return how well sizes are matched; nothing in the native form, where they are not meant to be."""
    if comparison.form != "controlled":
        return ""
    parts = [
        f"{name}{'' if name == 'parameters' else ' of models without a cache'} differ by {apart:.1%}"
        f"{'' if apart <= TOLERANCE else ' and are NOT matched'}"
        for name, apart in comparison.size_mismatch.items()
    ]
    return f" Between models of one width, at most, {'; '.join(parts)}." if parts else ""


def slice_words(task: str, name: str) -> str:
    """Return what a slice of a task is, as the label of an axis."""
    return QUANTITIES.get(f"{task} {name}") or QUANTITIES.get(name, name.replace("_", " "))


def metric_words(name: str) -> str:
    """Return what a metric is, as the label of an axis."""
    return QUANTITIES.get(name, name.replace("_", " "))


def averaged_answers(comparison: Comparison) -> str:
    """Return over which answers an accuracy is the mean, by the slices that tell them apart.

    Nothing is returned where there are no such slices.
    """
    found = next((one for result in comparison.results if (one := slices(result))), {})
    parts = []
    for name, one in found.items():
        if "accuracy" not in one:
            continue
        weights = zip(one["at"], one["accuracy"]["weight"], strict=True)
        at = [place for place, weight in weights if weight > 0]
        if len(at) > 1:
            parts.append(f"{slice_words(comparison.task, name)}, from {at[0]:,} to {at[-1]:,}")
    if not parts:
        return ""
    return (
        f"An accuracy is the mean over all answers of a test alike ({'; '.join(parts)}): a model that is"
        " right at some of these and at chance at others has an accuracy in between."
    )


def diverged_runs(comparison: Comparison) -> str:
    """Return how many runs diverged and what they count as; nothing where none did."""
    count = sum(result["status"] == "diverged" for result in comparison.results)
    if not count:
        return ""
    return f"{pluralize(count, 'run')} diverged, which counts as chance in accuracy and nowhere else."
