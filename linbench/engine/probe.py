"""Layers that linbench does not ship are probed before they are trained: one that sees the future, mixes rows
or answers by chance would get a clean score."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from linbench.common.errors import PluginError, UserError
from linbench.common.hashing import digest
from linbench.common.laws import Law
from linbench.common.streams import tell
from linbench.engine.layer_under_test import PLACES, Subject, difference, seeded
from linbench.engine.workers import outcomes
from linbench.experiments.cell import Cell
from linbench.experiments.loading import theirs
from linbench.experiments.model_spec import LayerSpec
from linbench.experiments.precision import arithmetic
from linbench.results.record import FINAL, UNPROBED, Result

LONGEST = 512
"""Tokens of a sequence at most: what is trained at more is probed at so many, so that a loop over tokens
takes seconds."""

ROWS = 3
"""Of a batch."""

SHORTEST, SECONDS = 30.0, 300.0
"""That a layer has for its probe, which takes about one, with the start of a process: what a group may be
silent for, between these."""

_ASKED = {
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
"""By law what it asks, and what mostly breaks it."""


class Probe(NamedTuple):
    """One layer of a cell, by its place in the model, to be called with sequences of these lengths."""

    cell: Cell
    place: int
    lengths: tuple[int, ...]

    @property
    def layer(self) -> LayerSpec:
        """What is probed."""
        return self.cell.model.layers[self.place]


class Breach(NamedTuple):
    """A law that a layer breaks, and how that was seen. law None: its outputs are none, which nothing
    excuses."""

    law: Law | None
    seen: str


class Probed(NamedTuple):
    """What a probe found, and what kept it from its end, if anything did."""

    breaches: tuple[Breach, ...] = ()
    trouble: str | None = None
    refusal: str | None = None
    """A sentence if linbench itself cannot use the layer, such as a constructor that takes an object."""


_known: dict[str, Probed] = {}
"""What was found in this process, by what was probed."""


class Marks:
    """Marks that results get for the laws which the layers of their cells break. `allow`: laws that may be
    broken. timeout: seconds for which a group that trains may report nothing."""

    def __init__(self, allow: frozenset[Law] = frozenset(), timeout: float = SECONDS) -> None:
        self.allow, self.seconds = allow, min(SECONDS, max(SHORTEST, timeout))
        self._of: dict[str, list[str]] = {}

    def probe(self, cells: Sequence[Cell]) -> None:
        """Probe all layers of `cells` that are not shipped, each once in the life of this process, in a
        process of their own.

        Raises UserError: one breaks a law that it may not.
        """
        asked = {cell.id: _probes(cell) for cell in cells}
        _learn({key: probe for probes in asked.values() for key, probe in probes.items()}, self.seconds)
        sentences = {
            key: _refusal(probe, _known[key], self.allow)
            for probes in asked.values()
            for key, probe in probes.items()
        }
        if refused := [sentence for sentence in sentences.values() if sentence]:
            raise UserError(" ".join(dict.fromkeys(refused)))
        for name, probes in asked.items():
            found = [mark for key in probes for mark in _marks(_known[key])]
            self._of[name] = list(dict.fromkeys(found))

    def on(self, result: Result) -> Result:
        """Return the result with what its layers are marked by; that one was not probed matters only where
        something was measured."""
        found = [
            mark for mark in self._of.get(result["id"], ()) if mark != UNPROBED or result["status"] in FINAL
        ]
        return {**result, "marks": [*result["marks"], *found]} if found else result


def _probes(cell: Cell) -> dict[str, Probe]:
    """Return what there is to probe of a cell, by a hash of what decides the answer."""
    trained = {
        min(task.seq_len, LONGEST)
        for task in (*(segment.task for segment in cell.trained_on), *cell.tested_on)
    }
    lengths = tuple(sorted({min(trained), max(trained)}))
    found = {}
    for place, layer in enumerate(cell.model.layers):
        if layer.entry.digest is not None:
            how = [cell.model.backbone.d_model, lengths, cell.device, cell.protocol.precision]
            found[digest([layer.identity(), *how])] = Probe(cell, place, lengths)
    return found


def _learn(probes: Mapping[str, Probe], seconds: float) -> None:
    """Find out what is not known of these yet; what could not be is said on standard error."""
    new = [key for key in probes if key not in _known]
    for place, outcome in (
        outcomes(examine, [probes[key] for key in new], workers=1, seconds=seconds) if new else ()
    ):
        found = _known[new[place]] = outcome.value or Probed(trouble=outcome.failure)
        if found.trouble:
            name = probes[new[place]].layer.entry.name
            tell(
                f"linbench: {name} could not be probed for the laws of layers, so whatever it scores has no"
                f" verdict: {found.trouble}."
            )


def _marks(probed: Probed) -> list[str]:
    return [
        *(breach.law.value for breach in probed.breaches if breach.law),
        *([UNPROBED] if probed.trouble else []),
    ]


def _refusal(probe: Probe, probed: Probed, allow: frozenset[Law]) -> str | None:
    """Return which law a layer breaks that it may not, how that was seen and what to do; None: it breaks
    none."""
    if probed.refusal:
        return probed.refusal
    wrong = [breach for breach in probed.breaches if breach.law not in allow]
    if not wrong:
        return None
    name, (law, seen) = probe.layer.entry.name, wrong[0]
    if law is None:
        return f"{name} cannot be trained: {seen}."
    others = [breach.law.value for breach in wrong[1:] if breach.law]
    also = f" (it is {' and '.join(others)}, too)" if others else ""
    option = " ".join(f"--allow {each}" for each in (law.value, *others))
    return (
        f"{name} is {law.value}{also}: {seen}. {_ASKED[law]}; {option} trains it all the same, marked and"
        " without a verdict."
    )


def examine(probe: Probe) -> Probed:
    """Put a layer to the laws on its cell's device, at the highest precision that it takes: float64, float32
    or that of its cell."""
    torch.set_float32_matmul_precision("highest")
    precision, device = probe.cell.protocol.precision, probe.cell.device
    trouble = ""
    for around in (nullcontext, partial(arithmetic, precision, device))[: 1 if precision == "fp32" else 2]:
        try:
            with torch.no_grad(), torch.cuda.device(device if device != "cpu" else -1), around():
                return Probed(tuple(_breaches(Subject(probe.cell, probe.layer, device), probe.lengths)))
        except PluginError as error:
            return Probed(refusal=str(error))
        # whatever a layer raises is told again, as its cell's, when that is trained
        except Exception as error:
            trouble = theirs(error)
    return Probed(trouble=trouble)


def _breaches(subject: Subject, lengths: Sequence[int]) -> Iterator[Breach]:
    """Give the first breach of each law; outputs that are none end the search."""
    if unlike := _of_two_builds(subject, lengths[-1]):
        # every comparison below builds the layer anew, and would call this by another law's name
        yield unlike
        return
    found: dict[Law | None, Breach] = {}
    for length, index, training in product(lengths, PLACES, (False, True)):
        said = f"{', in training' if training else ''}{PLACES[index]}"
        for breach in _of_call(
            partial(subject.called, index=index, training=training), subject, length, said, alone=not training
        ):
            if breach.law not in found:
                found[breach.law] = breach
                yield breach
            if breach.law is None:
                return
    yield from _of_two_calls(subject, lengths[-1])


def _of_call(
    called: Callable[[Tensor], Tensor], subject: Subject, length: int, said: str, *, alone: bool
) -> Iterator[Breach]:
    """Give what breaks a law when some tokens, or some rows, are replaced. alone: a row must also give the
    same by itself."""
    x = subject.tokens(length, rows=ROWS)
    whole = called(x)
    if whole.shape != x.shape or not whole.isfinite().all():
        wrong = (
            "not all of its outputs are finite" if whole.shape == x.shape else f"it gives {list(whole.shape)}"
        )
        yield Breach(None, f"{wrong} for inputs {list(x.shape)} from N(0, 1){said}")
        return
    limit = subject.limit(1e-9)
    for t in _splits(length):
        y = called(torch.cat([x[:, :t], 3 * subject.tokens(length, rows=ROWS, seed=t)[:, t:] + 1], dim=1))
        if (moved := difference(y[:, :t], whole[:, :t], whole)) > limit:
            at = _worst(y[:, :t], whole[:, :t])
            yield Breach(
                Law.non_causal,
                f"with the tokens from {t} of {length} on replaced, its output at token {at} moves by"
                f" {_share(moved)}{said}",
            )
            break
    y = called(torch.cat([x[:1], 5 * x[1:] + 1]))
    if (moved := difference(y[:1], whole[:1], whole)) > limit:
        at = _worst(y[:1], whole[:1])
        yield Breach(
            Law.batch_mixing,
            f"with the other rows of a batch replaced, a row's output at token {at} of {length} moves by"
            f" {_share(moved)}{said}",
        )
    elif alone and (moved := difference(called(x[1:2]), whole[1:2])) > limit:
        yield Breach(
            Law.batch_mixing,
            f"a row of {length} tokens gives other outputs alone than in a batch of {ROWS}, by"
            f" {_share(moved)}{said}",
        )


def _of_two_builds(subject: Subject, length: int) -> Breach | None:
    x = subject.tokens(length, rows=ROWS)
    first, second = (subject.called(x, 0, training=False) for _ in range(2))
    if first.shape != second.shape or not (first.isfinite().all() and second.isfinite().all()):
        return None  # told with its shape
    if (moved := difference(second, first)) <= subject.limit(1e-9):
        return None
    seen = f"built twice from one seed, it gives outputs that differ by {_share(moved)}"
    return Breach(
        Law.nondeterministic,
        f"{seen}: its constructor draws from a generator of its own, which nobody can seed",
    )


def _of_two_calls(subject: Subject, length: int) -> Iterator[Breach]:
    mixer, x = subject.build(), subject.tokens(length, rows=ROWS)
    with seeded(subject.device, "probe"):
        first, second = (mixer(x).y for _ in range(2))
    if (moved := difference(second, first)) > subject.limit(1e-9):
        yield Breach(
            Law.nondeterministic,
            f"two calls with the same {length} tokens differ by {_share(moved)}, not in training",
        )


def _splits(length: int) -> list[int]:
    """Return the tokens from which on others are put: the middle, where a leak of many tokens shows most, and
    odd places within chunks."""
    return sorted(
        {t for t in (length // 2, length // 3 | 1, length - 1, 1) if 0 < t < length},
        key=lambda t: abs(t - length // 2),
    )


def _worst(given: Tensor, expected: Tensor) -> int:
    """Return the place in [B, T, D] of the token that moved the most."""
    return int((given - expected).abs().nan_to_num(torch.inf).amax(dim=(0, 2)).argmax())


def _share(moved: float) -> str:
    return f"{moved:.2g} times the largest output"
