"""Probes layers that linbench does not ship before they are trained.

A layer that sees the future, mixes the rows of a batch or gives random answers would otherwise get a clean
score.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from linbench.common.errors import PluginError, UserError
from linbench.common.hashing import digest
from linbench.common.laws import Law
from linbench.common.streams import tell
from linbench.engine.layer_under_test import LAYER_POSITIONS, LayerUnderTest, difference, seeded
from linbench.engine.workers import outcomes
from linbench.experiments.cell import Cell
from linbench.experiments.loading import describe_error
from linbench.experiments.model_spec import LayerSpec
from linbench.experiments.precision import arithmetic
from linbench.results.record import FINAL, UNPROBED
from linbench.results.schema.cells import CellResult

LONGEST = 512
"""Longest sequence of a probe.

Layers that are trained on longer ones are probed at this length, so that a loop over tokens takes seconds.
"""

ROWS = 3
"""Sequences of a batch."""

SHORTEST, SECONDS = 30.0, 300.0
"""Least and most seconds that a probe may take; between these, as long as a group may be silent.

A probe takes about one second, with the start of a process.
"""

_ADVICE = {
    Law.non_causal: (
        "A layer must be causal, or its score means nothing; the usual causes are a missing mask and a"
        " convolution that pads both sides"
    ),
    Law.batch_mixing: (
        "A row of a batch must not depend on the others; the usual causes are batch_first=False, and"
        " statistics over a batch"
    ),
    Law.nondeterministic: (
        "Layers built from one seed, and calls outside training, must agree; the usual causes are random"
        " draws and a cache"
    ),
}
"""The demand of each law, and the usual causes of a breach."""


class Probe(NamedTuple):
    """A probe of one layer of a cell, by its place in the model, with sequences of these lengths."""

    cell: Cell
    place: int
    lengths: tuple[int, ...]

    @property
    def layer(self) -> LayerSpec:
        """The layer that is probed."""
        return self.cell.model.layers[self.place]


class Breach(NamedTuple):
    """A law that a layer breaks, and how that was seen.

    law: None if outputs have a wrong shape or are not finite; no option allows that.
    """

    law: Law | None
    seen: str


class ProbeResult(NamedTuple):
    """The result of a probe. trouble: the reason why it could not be finished, if it could not."""

    breaches: tuple[Breach, ...] = ()
    trouble: str | None = None
    refusal: str | None = None
    """A sentence if linbench itself cannot use the layer, such as a constructor that takes an object."""
    adapter: str = ""
    """Lines of Python with which it can, to copy."""


_known: dict[str, ProbeResult] = {}
"""Results of probes in this process, by a digest of what decides them."""


class Marks:
    """The marks that results get for laws that the layers of their cells break.

    allow: laws that may be broken. timeout: seconds after which a group that reports nothing is ended.
    """

    def __init__(self, allow: frozenset[Law] = frozenset(), timeout: float = SECONDS) -> None:
        self.allow, self.seconds = allow, min(SECONDS, max(SHORTEST, timeout))
        self._by_cell: dict[str, list[str]] = {}

    def probe(self, cells: Sequence[Cell]) -> None:
        """Probe all layers of cells that linbench does not ship, in a process of their own.

        Each layer is probed once in the life of this process.

        Raises UserError: a layer breaks a law that is not allowed to be broken.
        """
        by_cell = {cell.id: _probes(cell) for cell in cells}
        probes: dict[str, Probe] = {}
        for probes_of_cell in by_cell.values():
            probes |= probes_of_cell
        _run_new(probes, self.seconds)
        sentences = [_refusal(probe, _known[key], self.allow) for key, probe in probes.items()]
        refusals = [sentence for sentence in sentences if sentence]
        if refusals:
            adapters = dict.fromkeys(_known[key].adapter for key in probes)
            raise UserError(" ".join(dict.fromkeys(refusals)), adapter="\n\n".join(filter(None, adapters)))
        for name, probes_of_cell in by_cell.items():
            marks = [mark for key in probes_of_cell for mark in _marks(_known[key])]
            self._by_cell[name] = list(dict.fromkeys(marks))

    def on(self, result: CellResult) -> CellResult:
        """Return a result with the marks of its layers.

        The mark of a layer that could not be probed is left out if nothing was measured.
        """
        marks = self._by_cell.get(result["id"], ())
        added = [mark for mark in marks if mark != UNPROBED or result["status"] in FINAL]
        return {**result, "marks": [*result["marks"], *added]} if added else result


def _probes(cell: Cell) -> dict[str, Probe]:
    """Return the probes of a cell's layers, by a digest of what decides their results."""
    tasks = [*(segment.task for segment in cell.trained_on), *cell.tested_on]
    trained = {min(task.seq_len, LONGEST) for task in tasks}
    lengths = tuple(sorted({min(trained), max(trained)}))
    probes = {}
    for place, layer in enumerate(cell.model.layers):
        if not layer.entry.shipped:
            conditions = [cell.model.backbone.d_model, lengths, cell.device, cell.protocol.precision]
            probes[digest([layer.identity(), *conditions])] = Probe(cell, place, lengths)
    return probes


def _run_new(probes: Mapping[str, Probe], seconds: float) -> None:
    """Run the probes whose results are not known; tell on standard error which could not be finished."""
    new = [key for key in probes if key not in _known]
    if not new:
        return
    for number, outcome in outcomes(examine, [probes[key] for key in new], workers=1, seconds=seconds):
        result = _known[new[number]] = outcome.value or ProbeResult(trouble=outcome.failure)
        if result.trouble:
            name = probes[new[number]].layer.entry.spelling
            tell(
                f"linbench: {name} could not be probed for the laws of layers, so whatever it scores has no"
                f" verdict: {result.trouble}."
            )


def _marks(probed: ProbeResult) -> list[str]:
    return [
        *(breach.law.value for breach in probed.breaches if breach.law),
        *([UNPROBED] if probed.trouble else []),
    ]


def _refusal(probe: Probe, probed: ProbeResult, allow: frozenset[Law]) -> str | None:
    """Return a sentence about a broken law, how that was seen and what to do; None if no law is broken.

    Laws in `allow` may be broken.
    """
    if probed.refusal:
        return probed.refusal
    wrong = [breach for breach in probed.breaches if breach.law not in allow]
    if not wrong:
        return None
    name = probe.layer.entry.spelling
    law, seen = wrong[0]
    if law is None:
        return f"{name} cannot be trained: {seen}."
    others = [breach.law.value for breach in wrong[1:] if breach.law]
    also = f" (it is {' and '.join(others)}, too)" if others else ""
    option = " ".join(f"--allow {law_name}" for law_name in (law.value, *others))
    return (
        f"{name} is {law.value}{also}: {seen}. {_ADVICE[law]}; {option} trains it all the same, marked and"
        " without a verdict."
    )


def examine(probe: Probe) -> ProbeResult:
    """Test the laws on a layer, on its cell's device, in the highest precision that it takes.

    That is float64, float32 or the precision of its cell.
    """
    torch.set_float32_matmul_precision("highest")
    precision, device = probe.cell.protocol.precision, probe.cell.device
    contexts: list[Callable[[], AbstractContextManager[object]]] = [nullcontext]
    if precision != "fp32":
        contexts.append(partial(arithmetic, precision, device))
    trouble = ""
    for around in contexts:
        try:
            with torch.no_grad(), torch.cuda.device(device if device != "cpu" else -1), around():
                return ProbeResult(
                    tuple(_breaches(LayerUnderTest(probe.cell, probe.layer, device), probe.lengths))
                )
        except PluginError as error:
            return ProbeResult(refusal=str(error), adapter=error.adapter)
        # the layer will raise again when its cell is trained, and the result will tell
        except Exception as error:
            trouble = describe_error(error)
    return ProbeResult(trouble=trouble)


def _breaches(subject: LayerUnderTest, lengths: Sequence[int]) -> Iterator[Breach]:
    """Yield the first breach of each law; outputs of a wrong shape, or not finite, end the search."""
    if breach := _breach_of_two_builds(subject, lengths[-1]):
        # every comparison below builds the layer anew, and would take this for a breach of another law
        yield breach
        return
    first_breaches: dict[Law | None, Breach] = {}
    for length, index, training in product(lengths, LAYER_POSITIONS, (False, True)):
        circumstances = f"{', in training' if training else ''}{LAYER_POSITIONS[index]}"
        call = partial(subject.call, index=index, training=training)
        for breach in _breaches_of_call(call, subject, length, circumstances, compare_alone=not training):
            if breach.law not in first_breaches:
                first_breaches[breach.law] = breach
                yield breach
            if breach.law is None:
                return
    yield from _breaches_of_two_calls(subject, lengths[-1])


def _breaches_of_call(
    call: Callable[[Tensor], Tensor],
    subject: LayerUnderTest,
    length: int,
    circumstances: str,
    *,
    compare_alone: bool,
) -> Iterator[Breach]:
    """Yield breaches that show when some tokens, or some rows, are replaced.

    Args:
        call: the layer.
        circumstances: words for messages.
        compare_alone: whether a row must also give the same outputs without the others.
    """
    x = subject.tokens(length, rows=ROWS)
    expected = call(x)
    if expected.shape != x.shape or not expected.isfinite().all():
        wrong_shape = expected.shape != x.shape
        wrong = f"it gives {list(expected.shape)}" if wrong_shape else "not all of its outputs are finite"
        yield Breach(None, f"{wrong} for inputs {list(x.shape)} from N(0, 1){circumstances}")
        return
    limit = subject.limit(1e-9)
    if breach := _breach_of_causality(call, subject, x, expected, limit):
        yield breach._replace(seen=breach.seen + circumstances)
    y = call(torch.cat([x[:1], 5 * x[1:] + 1]))
    moved = difference(y[:1], expected[:1], expected)
    if moved > limit:
        at = _worst(y[:1], expected[:1])
        yield Breach(
            Law.batch_mixing,
            f"with the other rows of a batch replaced, a row's output at token {at} of {length} moves by"
            f" {_share(moved)}{circumstances}",
        )
    elif compare_alone:
        moved = difference(call(x[1:2]), expected[1:2])
        if moved > limit:
            yield Breach(
                Law.batch_mixing,
                f"a row of {length} tokens gives other outputs alone than in a batch of {ROWS}, by"
                f" {_share(moved)}{circumstances}",
            )


def _breach_of_causality(
    call: Callable[[Tensor], Tensor], subject: LayerUnderTest, x: Tensor, expected: Tensor, limit: float
) -> Breach | None:
    """Return the breach that shows when the last tokens of x are replaced, if one does."""
    length = x.shape[1]
    for t in _splits(length):
        replacements = 3 * subject.tokens(length, rows=ROWS, seed=t) + 1
        y = call(torch.cat([x[:, :t], replacements[:, t:]], dim=1))
        moved = difference(y[:, :t], expected[:, :t], expected)
        if moved > limit:
            at = _worst(y[:, :t], expected[:, :t])
            seen = f"with the tokens from {t} of {length} on replaced, its output at token {at} moves by"
            return Breach(Law.non_causal, f"{seen} {_share(moved)}")
    return None


def _breach_of_two_builds(subject: LayerUnderTest, length: int) -> Breach | None:
    """Return the breach that shows when a layer is built twice from one seed, if one does."""
    x = subject.tokens(length, rows=ROWS)
    first, second = (subject.call(x, 0, training=False) for _ in range(2))
    if first.shape != second.shape or not (first.isfinite().all() and second.isfinite().all()):
        return None  # the next calls will show it
    moved = difference(second, first)
    if moved <= subject.limit(1e-9):
        return None
    seen = f"built twice from one seed, it gives outputs that differ by {_share(moved)}"
    return Breach(
        Law.nondeterministic,
        f"{seen}: its constructor draws from a generator of its own, which nobody can seed",
    )


def _breaches_of_two_calls(subject: LayerUnderTest, length: int) -> Iterator[Breach]:
    """Yield the breach that shows when a layer is called twice alike, if one does."""
    mixer, x = subject.build(), subject.tokens(length, rows=ROWS)
    with seeded(subject.device, "probe"):
        first, second = (mixer(x).y for _ in range(2))
    moved = difference(second, first)
    if moved > subject.limit(1e-9):
        yield Breach(
            Law.nondeterministic,
            f"two calls with the same {length} tokens differ by {_share(moved)}, not in training",
        )


def _splits(length: int) -> list[int]:
    """Return positions from which on tokens are replaced.

    The first is the middle, where a leak over many tokens shows most; the others do not lie on borders of
    chunks.
    """
    middle = length // 2
    positions = {t for t in (middle, length // 3 | 1, length - 1, 1) if 0 < t < length}
    return sorted(positions, key=lambda t: abs(t - middle))


def _worst(values: Tensor, expected: Tensor) -> int:
    """Return the position in [B, T, D] of the token that moved the most."""
    return int((values - expected).abs().nan_to_num(torch.inf).amax(dim=(0, 2)).argmax())


def _share(moved: float) -> str:
    return f"{moved:.2g} times the largest output"
