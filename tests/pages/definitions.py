"""Numbers of pages that nobody measured: settings, limits, formulas and published values, with reasons."""

import re
from typing import NamedTuple

from tests.pages.numbers import spaced


class Definition(NamedTuple):
    """Words with numbers that are no measurement.

    Attributes:
        page: on which they stand; `*` for all.
        words: a pattern of them.
        reason: why they need no stored result.
    """

    page: str
    words: re.Pattern[str]
    reason: str


def _phrase(page: str, words: str, reason: str) -> Definition:
    return Definition(page, spaced(words), reason)


def _pattern(page: str, words: str, reason: str) -> Definition:
    return Definition(page, re.compile(words, re.MULTILINE), reason)


INITIAL, CI, FIGURES, TASKS = "docs/initial-values.md", "docs/ci.md", "docs/figures.md", "docs/tasks.md"
USAGE, SPEED, RESULTS = "docs/usage.md", "docs/speed.md", "docs/results.md"
YOUR_LAYER = "docs/your-layer.md"
LADDERS, VALIDATION = "docs/decisions/0011-ladders.md", "docs/decisions/0014-validation.md"

DEFINITIONS = [
    _pattern("*", r"95 %\s+interval", "the confidence of every interval"),
    _pattern("*", r"\bat\s+0?\.05\b", "the level of every test"),
    _pattern("*", r"N\(0, [^)]*\)", "a distribution"),
    _pattern("*", r"\brate\s+\.\d+", "a learning rate, which the command or suite sets"),
    _phrase("README.md", "written one to five times", "the task's setting"),
    _pattern(INITIAL, r"^\|.*\|$", "published initial values with their sources, and linbench's own"),
    _phrase(INITIAL, "log-uniform in (0.001, 0.1)", "a published distribution"),
    _pattern(CI, r"^\| \d(?:, \d)? \|", "exit codes"),
    _phrase(CI, "parameters that differ by more than 5 %", "the tolerance of matched sizes"),
    _phrase(
        CI, "different in at most 5 % of commands", "the level, which tests/results/test_contrast.py holds"
    ),
    _phrase(CI, "red with a probability of 95 %", "the power, which tests/results/test_gate.py holds"),
    _phrase(CI, "significant at 0.01 among all gated cells", "the level, which is the policy's default"),
    _phrase(CI, "six seeds of six cells", "what tests/results/test_gate.py draws"),
    _phrase(CI, "red in at most one of 100 runs", "a bound that tests/results/test_gate.py holds"),
    _phrase(CI, "for one cell at 0.01", "computed by linbench/results/power.py, and tested there"),
    _phrase(RESULTS, "accuracy above chance is at least .9", "the level that tables of lengths are read at"),
    _phrase("docs/steps.md", "hold together with 95 % in each column", "the confidence of the intervals"),
    _phrase(CI, "seven for one cell at 0.001", "computed by linbench/results/power.py, and tested there"),
    _pattern(FIGURES, r"levels\s+of\s+\.9\s+and\s+\.5", "the levels that the figure draws"),
    _pattern(FIGURES, r"[59]0 %", "the levels that define capacity"),
    _pattern(
        FIGURES, r"(?:at\s+least|an\s+accuracy\s+of|below)\s+\.9\b", "the level that figures and tables draw"
    ),
    _pattern(TASKS, r"^\| (?:overwrites|a sum) \| [01] \| [01] \|", "arithmetic of update rules"),
    _phrase(TASKS, "a normalised one 7.5", "arithmetic of update rules"),
    _phrase(TASKS, "196 of 256 tokens are noise", "counted from the preset's settings"),
    _phrase(TASKS, "870 of 1,024", "counted from the preset's settings"),
    _phrase(USAGE, "parameters that differ by more than 5 %", "the tolerance of matched sizes"),
    _phrase(YOUR_LAYER, "transformers 5.24, minGRU-pytorch .2 and local-attention 1.11", "versions"),
    _phrase(YOUR_LAYER, "within 5 %", "the tolerance of matched sizes"),
    _phrase(YOUR_LAYER, "`run` and `sweep` change no size. `--set model.parameters=120000`", "a setting"),
    _phrase("docs/adding-a-variant.md", "longer than five minutes", "the limit of a probe (engine/probe.py)"),
    _phrase("docs/adding-a-variant.md", "at least half a minute", "the least of it (engine/probe.py)"),
    _phrase("docs/adding-a-variant.md", "hangs for five minutes", "the limit of a law (verify/check.py)"),
    _phrase(USAGE, "14 of 14, 22 of 24 or 27 of 32 seeds", "computed by linbench/claims/looks.py"),
    _phrase(USAGE, "any verdict is wrong is at most 5 %", "the level of claims"),
    _phrase("docs/reliability.md", "Below 0.8 a cell is named", "a level of linbench/results/reliability.py"),
    _phrase("docs/reliability.md", "intervals of 95 %", "a level of linbench/results/reliability.py"),
    _phrase(USAGE, "within .5 % of the task's optimum", "a rule of ladders (engine/ladder.py)"),
    _phrase(USAGE, "lower the loss by less than 2 %", "a rule of ladders (engine/ladder.py)"),
    _phrase(RESULTS, "or with 32 times the first budget", "a rule of ladders (protocols.yaml)"),
    _phrase(RESULTS, "or has had 32 times the first budget", "a rule of ladders (protocols.yaml)"),
    _phrase(RESULTS, "A head has 16 key dimensions", "a setting of zoo"),
    _phrase(RESULTS, "with 32 variables", "a setting of zoo"),
    _phrase(RESULTS, "With 32 variables", "a setting of zoo"),
    _phrase(RESULTS, "recalls at 90 %", "a level of linbench/results/capacity.py"),
    _phrase(RESULTS, "saw 12 million tokens of one length", "a setting of zoo-one-length"),
    _phrase(RESULTS, "matched within 5 %", "the tolerance of matched sizes"),
    _phrase(RESULTS, "once, twice, three or five times", "the task's setting"),
    _phrase(RESULTS, "within 12 million tokens", "a setting of zoo-one-length"),
    _phrase(SPEED, "It can exceed 100 %", "the whole of a roofline"),
    _phrase(SPEED, "layers reach 40 % of the roofline or more", "a level that rows are counted from"),
    _phrase(SPEED, "reach 33 % of the roofline or more", "a level that rows are counted from"),
    _phrase("docs/decisions/0004-quick-presets.md", "1.2 M tokens at a learning rate of 5e-3", "a setting"),
    _phrase("docs/decisions/0004-quick-presets.md", "(3e-3, of those tried", "a setting"),
    _phrase("docs/decisions/0008-hashing.md", "five of six launches", "counted in the code of that time"),
    _phrase(LADDERS, "twice that, four times, up to a cap", "the rule"),
    _phrase(LADDERS, "takes 1.2 times the training of its last rung", "arithmetic of the rule"),
    _phrase(LADDERS, "at .995 of the task's optimum", "a rule of ladders (engine/ladder.py)"),
    _phrase(LADDERS, "lowers the loss by less than 2 %", "a rule of ladders (engine/ladder.py)"),
    _phrase(LADDERS, "more than .1 wide", "a level that comparisons are counted from"),
    _phrase(LADDERS, "stopped after six minutes", "how the campaign was run"),
    _phrase(LADDERS, "were trained on 32 times the tokens", "the setting of the command"),
    _phrase(LADDERS, "have reached .9 on validation", "the level that the table counts"),
    _phrase(LADDERS, "flat at chance after four times the tokens", "the rung at which ladders ended"),
    _phrase(LADDERS, "between 5 and 32 times", "read off the table above it"),
    _phrase(VALIDATION, "(accuracy .985 or more)", "the level that the table counts from"),
    _phrase(VALIDATION, "with 16 times the first budget", "how far the campaign came"),
]
