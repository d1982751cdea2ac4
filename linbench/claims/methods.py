"""The rules by which verdicts are made, for readers of `docs/claims.md`."""

METHODS = """## How verdicts are made

**Rules and thresholds.** Every claim has a rule that supports it and a rule that refutes it. If both are
false, it is undecided. Thresholds are those of the sources that the claims were gathered from. If a source
gave no threshold for refuting a claim, it is refuted when a model that should fail does as well as one that
should succeed, when an expected gap is absent, or when a stated bound is violated. Where an experiment here
differs from the source, "Here" says how.

**Rules are not older than all results.** The rules first stood in `linbench/claims` with commit 775f32cc. Of
the 1,652 results of cells in `results/h200`, without those in its folder `claims`, 1,223 are from earlier
commits. Most of these belong to the suites `zoo` and `zoo-native`, which several claims use. Two hours
before the rules, docs/results.md already printed the numbers of C9 and C13. The author of the rules could
have known all of these. All results in folders named `claims` are from later commits, and the rule of C76
was written before anyone looked at speeds of its shapes.

**What was changed later.** In C56 a clause was removed, and in C57 a precondition was added; "Here" tells
both. The settings of C2 to C4 were changed after C2 and C4 had been looked at. Their rules are unchanged,
and no earlier run counts.

**Seeds.** A value needs at least three seeds. It is shown as mean ± standard deviation, or as the best seed
where the source reports the best. No verdict stands if leaving out a single seed of a single measure would
change it.

**Runs that do not count.** Three marks exclude a run: it was still improving when training ended
(`undertrained`), its learning rate was at the edge of those tried (`lr_edge`), or next to one that failed
(`lr_untried`). C53 and C75 ask which depths and rates are enough, so marks do not count there, as "Here"
says.

**Longer training.** If a claim is undecided only because runs were still improving, or because they did not
reach a condition that both rules contain, all of its runs and searches are repeated with 2, 4 and 8 times
the training. It stops at the first that is enough. C24, C31 and C57 contain such a condition. The runs of
C24 had reached it. Those of C31 and C57 had learned nothing when longer training was first asked for because
of it.

**Runs that were still improving, within bounds.** Such a run may stay as it is, or become as good as
possible. For a measure with a best value, such as accuracy, the result then lies between two numbers, shown
as "0.871 to 1.000". A verdict stands if the rules give the same answer for everything in between, whichever
seed is left out. If all runs with longer training are there, they count instead. For "the largest setting up
to which all scores reach a threshold", an improving run does not matter beyond the first setting that fails.
This was introduced after most runs had been looked at; no rule of a claim was changed for it. The best of
several seeds once counted whatever its marks. Now it lies between the best seed so far and what longer
training could make of the marked ones. This turned the verdict on C36 to undecided.

**Learning rates.** The learning rate of every model is chosen on three tuning seeds, among half decades and
then among the two neighbours of the best a quarter decade away. Older results used earlier rules: two tuning
seeds or one, half decades alone, and most of them the upper middle one among equally accurate rates. They
count where today's search has not been run, and every verdict that rests on them says so, for example
"learning rate chosen on one tuning seed".

**Devices.** Results of two kinds of devices never decide a claim together. A kind of device that has no
results of a claim starts with the training that other devices needed.

**Speeds.** A speed is the median over calls that are timed one after the other, ± half the distance between
the 20th and the 80th percentile. On a GPU it is the time of the device alone, on a CPU the time that a
caller waits. No verdict stands if one speed at its 20th or 80th percentile would change it. A timing that
ran beside other programs (`busy`), or in fewer than five calls, does not count and is repeated. A timing
with a throttled clock (`throttled`) does count: at full load a GPU reaches its power limit, in training as
in timing, and this slows down most what needs most power. The mark does not distinguish power from heat.
"""
