"""Sentences of the pages that follow from stored results or from code: the one list of them."""

import pandas as pd
import yaml

from linbench.experiments.plan_tasks import make_task
from linbench.experiments.protocol import Protocol, default_protocol
from linbench.experiments.registry import registry
from linbench.results.scores import accuracies_by_test
from linbench.verify.similarity import similarity
from linbench.verify.split_overlap import collisions
from linbench.verify.update_rules import DeltaRule, LeastSquares, Sum, Trials
from tests.pages import floors, gradient, regression, result_facts, speed_facts, trained_gradient, variants
from tests.pages.fact import Fact, short
from tests.results import beyond, doublings
from tests.results.drawn import compared
from tests.results.schedules import FOLDER, gains

LADDERS = "docs/decisions/0011-ladders.md"
PRESETS = "docs/decisions/0004-quick-presets.md"


def chance_of_overwriting() -> list[str]:
    """Return today's chance level of the task that the README shows."""
    (shown,) = (one for one in compared("cpu") if one.task == "variable_overwrite")
    cls = registry("task").find(shown.task).cls
    settings = shown.rows[0].results[0]["cell"]["task"]["settings"]
    return [short(cls(cls.Settings.parse(settings, where="task")).chance(), 3)]


def seeds_of(store: str, slug: str, label: str) -> list[float]:
    """Return the accuracies of a model in a stored comparison, whose files have the slug in their names."""
    (found,) = (one for one in compared(store) if one.slug == slug)
    (row,) = (row for row in found.rows if row.label == label)
    return row.accuracies


def best_and_worst() -> list[str]:
    hard = ("cpu", "mqar-quick-hard-controlled")
    return [f"{max(seeds_of(*hard, 'gated_deltanet')):.3f}", f"{min(seeds_of(*hard, 'deltanet')):.3f}"]


def recall_of_similar_keys() -> list[str]:
    """Return what is recalled of keys in clusters of four without training, as the command prints it."""
    found = []
    for cosine in (0.6, 0.9):
        *rules, least_squares = similarity(
            [Sum(), DeltaRule(), DeltaRule(beta=0.5), LeastSquares()],
            cosines=[cosine],
            clusters=[4],
            trials=Trials(),
        )
        if least_squares["accuracy"] < 0.9995:
            raise ValueError(f"least squares recall {least_squares['accuracy']}, not all")
        found += [short(cosine, 1), *(short(row["accuracy"]) for row in rules)]
    return found


def recall_after_training() -> list[str]:
    """Return the mean recall of trained layers at the highest cosine of the stored suite."""
    (found,) = compared("cpu/similarity")
    means = {}
    for row in found.rows:
        seeds = [accuracies[-1] for result in row.results if (accuracies := accuracies_by_test(result))]
        means[row.label.partition("[")[0]] = short(sum(seeds) / len(seeds))
    return [means[name] for name in ("linear_attention", "deltanet", "mesanet")]


def budget_of_schedules() -> list[str]:
    suite = yaml.safe_load((FOLDER / "0011-schedules.yaml").read_text(encoding="utf-8"))
    return [f"{suite['set']['protocol.tokens'] / 1e6:.1f}"]


def gained_by_the_last_fifth() -> list[str]:
    scores = doublings.load()
    own = scores[doublings.kind(scores) == "trained anew"]
    gained = own["twice"] - own["own_accuracy"] > doublings.MORE
    mark = doublings.marked(own)["gain in the last fifth"]
    room = own["own_accuracy"] < doublings.BELOW
    return [f"{100 * gained[each].mean():.0f}" for each in (~mark & room, mark)]


def gained_after_one_flat_step() -> list[str]:
    scores = doublings.load()
    own = scores[doublings.kind(scores) == "GPU"]
    unmarked = own[~doublings.marked(own)["one flat step"]]
    return [str((unmarked["twice"] - unmarked["own_accuracy"] > doublings.MORE).sum()), str(len(unmarked))]


def unmarked_by_rungs() -> list[str]:
    scores = doublings.load()
    return [str((~doublings.marked(scores)[doublings.RULE]).sum())]


def gained_beyond() -> list[str]:
    found = beyond.pairs(pd.read_csv(beyond.SCORES))
    gain = 100 * (found["beyond_2"] - found["beyond"])
    return [str(len(found)), f"{gain.mean():.1f}", f"{gain.std():.1f}"]


def gained_after_two_steps_flat_in_accuracy() -> list[str]:
    scores = doublings.load()
    flat = ~doublings.marked(scores)["two steps flat in accuracy"]
    own = scores[flat & (scores["own_accuracy"] < doublings.BELOW)]
    return [str(len(own)), str((own["twice"] - own["own_accuracy"] > doublings.MORE).sum())]


def better_with_wsd() -> list[str]:
    low = [interval.low for interval in gains("protocol.schedule", "cosine", "wsd")]
    return [str(sum(end > 0 for end in low)), str(len(low))]


def wide_intervals() -> list[str]:
    every = [*gains("protocol.schedule", "cosine", "wsd"), *gains("protocol.precision", "fp32", "bf16")]
    return [str(sum(one.high - one.low > 0.2 for one in every)), str(len(every))]


def longest_ladder() -> list[str]:
    tokens = pd.read_csv(FOLDER / "0011-plateaus.csv.xz")["tokens"]
    return [f"{tokens.max() / 1e6:.0f}"]


def overlap(*presets: str) -> list[str]:
    """Return the percentages of test examples that training has seen, by task and preset."""
    found = []
    for name in presets:
        task_name, _, preset_name = name.partition("/")
        task, _, preset = make_task(task_name, preset=preset_name)
        protocol = Protocol.parse({**default_protocol(), **preset.protocol}, where="protocol")
        counted = collisions(task, protocol)
        found.append(f"{100 * counted.shared / counted.tested:.1f}".removesuffix(".0"))
    return found


FACTS = [
    *regression.FACTS,
    *gradient.FACTS,
    *trained_gradient.FACTS,
    *result_facts.RESULT_FACTS,
    *speed_facts.FACTS,
    Fact(
        "README.md",
        "It brings {} variants from softmax attention to RWKV-7, {} published systems, {} tasks",
        variants.count,
    ),
    Fact("README.md", "is right with {} (chance)", chance_of_overwriting),
    Fact(PRESETS, "comes up to the worst of DeltaNet ({} and {})", best_and_worst),
    Fact(
        PRESETS,
        "the stored seeds, 0 to 2, end at {} or more",
        lambda: [f"{min(seeds_of('cpu', 'mqar-quick-native', 'gated_deltanet')):.3f}"],
    ),
    Fact(LADDERS, "were trained on {} million tokens", budget_of_schedules),
    Fact(LADDERS, "better beyond noise in {} of {}", better_with_wsd),
    Fact(LADDERS, "In {} of {} comparisons the interval is more than .1 wide on either side", wide_intervals),
    Fact(LADDERS, "({} million, eight seeds, one H200, commit dcd27cf)", longest_ladder),
    Fact(
        "docs/decisions/0013-undertrained.md",
        "With a cosine {} % of the unmarked runs that have room to gain did so, beside {} % of the marked",
        gained_by_the_last_fifth,
    ),
    Fact(
        "docs/decisions/0013-undertrained.md",
        "Of rungs on a GPU that it leaves unmarked {} of {} gained",
        gained_after_one_flat_step,
    ),
    Fact(
        "docs/decisions/0013-undertrained.md",
        "By the rule of ladders {} of the runs are unmarked",
        unmarked_by_rungs,
    ),
    Fact(
        "docs/decisions/0013-undertrained.md",
        "In accuracy alone {} runs were flat twice and below .97 while their loss still fell: {} of them"
        " gained",
        gained_after_two_steps_flat_in_accuracy,
    ),
    Fact(
        "docs/decisions/0014-validation.md",
        "Over all {} pairs of runs twice the training brings {} points at longer lengths, with a standard"
        " deviation of {} points",
        gained_beyond,
    ),
    Fact(
        "docs/tasks.md",
        "`parity/grazzi` ({} %), `modular_arithmetic/grazzi` ({} %) and its settings with brackets ({} %),"
        " `dyck/hewitt-2-*` ({} %) and `hewitt-8-*` ({} %), and `stack_manipulation/chomsky` ({} %)",
        lambda: overlap(
            "parity/grazzi",
            "modular_arithmetic/grazzi",
            "modular_arithmetic/grazzi-brackets",
            "dyck/hewitt-2-3",
            "dyck/hewitt-8-3",
            "stack_manipulation/chomsky",
        ),
        slow=True,
    ),
    Fact(
        "docs/tasks.md",
        "four keys of cosine {} a sum recalls {}, the delta rule {}, and with half the strength {}; at {}"
        " they recall {}, {} and {}. Least squares recall all.",
        recall_of_similar_keys,
    ),
    Fact(
        "docs/tasks.md",
        "At .9 the sum recalls {}, the delta rule {} and least squares {}, as means of three seeds.",
        recall_after_training,
    ),
    Fact("docs/tasks.md", "upper ones, with an error of {} %", floors.error),
    Fact("docs/tasks.md", "Up to {} % of the way a preset passes. Up to {} % the", floors.limits),
]
