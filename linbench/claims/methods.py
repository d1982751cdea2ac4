"""The rules by which verdicts are made, for readers of `docs/claims.md`."""

METHODS = """## How verdicts are made

**Rules and thresholds.** Every claim has a rule that supports it and a rule that refutes it. If both are
false, it is undecided. Thresholds are those of the sources that the claims were gathered from. If a source
gave no threshold for refuting a claim, it is refuted when a model that should fail does as well as one that
should succeed, when an expected gap is absent, or when a stated bound is violated. Where an experiment here
differs from the source, "Here" says how.

**Rules are not older than all results.** The rules first stood in `linbench/claims` with commit 775f32cc. Of
the 1,652 results of cells that `results/h200` held before the suite `capacity` was run, without those in its
folder `claims`, 1,223 are from earlier commits. Most of these belong to the suites `zoo-one-length` (then
`zoo`) and `zoo-native`, which several claims use. Two hours before the rules, docs/results.md already printed
the numbers of C9 and C13. The author of the rules could have known all of these. All results in folders named
`claims` are from later commits, and the rule of C76 was written before anyone looked at speeds of its shapes.

**What was changed later.** Every claim says when its rules first stood in the repository, and lists what was
changed since, with what had been seen by then. A hash of rules, measures and settings stands beside the
date; a test keeps it from changing without such an entry. On 2026-11-27 the way of judging was changed for
all claims, after all results here had been seen: until then a rule was applied to means over three seeds, a
verdict stood if leaving out one seed did not change it, and claims with too little training were repeated
with two, four and eight times as much. Thresholds stayed as they were, but for those that are listed.

**One seed, one answer.** A rule is taken apart into comparisons of single quantities, joined by `and` and
`or`; `max(a, b) - min(a, b) >= 0.05` becomes `a - b >= 0.05 or b - a >= 0.05`. Each comparison is asked of
every seed: seed s of all measures of a claim is one replicate of the whole experiment. What is judged is the
median over seeds. Where two measures are equal, the seed does not tell which is better, and counts against.
So does a seed that failed or whose learning rate is in doubt.

**How many seeds must agree.** If the median were on the other side, a seed would say yes with probability
1/2 at most. A comparison is shown if so many seeds say yes that this would be too rare then (an exact sign
test, for any distribution). All parts of an `and` must be shown, each at the full level; one part of an `or`
must be shown, at its share of the level. Claims are looked at with 14, 24 and 32 seeds, and the level is
spent over these looks: 14 of 14, 22 of 24 or 27 of 32 seeds are enough. A claim that 32 seeds do not decide
stays undecided. No further seed can decide a claim where so many seeds agree with neither rule that the rest
of the 32 would not be enough. If a claim is undecided, its line says how many more seeds would decide it if
they were like those seen.

**The chance of a wrong verdict.** Each of the two rules of a claim is shown by chance with a probability of
at most .00025. This leaves room for a hundred claims, so the chance that any verdict at all is wrong is at
most 5 %. Results that a rule was written for can still flatter it (see above), and this does not cover the
timings of C76.

**Premises.** Some claims presuppose something, for example that both models have learned the length that
they were trained on. A premise belongs to both rules. If it does not hold, nothing is decided.

**Runs that do not count.** Two marks exclude a run: its learning rate was at the edge of those tried
(`lr_edge`), or next to one that failed (`lr_untried`). A run that was still improving (`undertrained`) may
stay as it is, or become perfect. Its seed says yes if that is true of all in between. For "the largest
setting up to which all scores reach a threshold", it does not matter beyond the first setting that fails.
C53 and C75 ask which depths and rates are enough, so marks do not count there, as "Here" says.

**Training until it is learned.** Most claims train on ladders: from a base budget on, which is doubled up to
32 times, until the task is learned or two doublings in a row bring nothing. The last rung counts. If it ends
at the largest budget and was still gaining, it is marked as still improving.

**What is shown.** The value of a measure is the median over its seeds, with the lowest and the highest in
parentheses, or the two medians between which longer training may take it.

**Learning rates.** The learning rate of every model is chosen on three tuning seeds, among half decades and
then among the two neighbours of the best a quarter decade away. Older results used earlier rules: two tuning
seeds or one, half decades alone, and most of them the upper middle one among equally accurate rates. They
count where today's search has not been run, and every verdict that rests on them says so, for example
"learning rate chosen on one tuning seed".

**Devices.** Results of two kinds of devices never decide a claim together. If several have results, the
one with most seeds counts, whatever it says; if another one says the opposite, the claim is undecided.

**Speeds.** A speed is the median over calls that are timed one after the other, with the 20th and the 80th
percentile in parentheses. On a GPU it is the time of the device alone, on a CPU the time that a caller
waits. A verdict stands if it is the same for all speeds between these percentiles. A timing that
ran beside other programs (`busy`), or in fewer than five calls, does not count and is repeated. A timing
with a throttled clock (`throttled`) does count: at full load a GPU reaches its power limit, in training as
in timing, and this slows down most what needs most power. The mark does not distinguish power from heat.
"""
