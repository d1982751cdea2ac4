"""The laws, each from a subject to whether it holds and what was found."""

import itertools
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from linbench.engine.layer_under_test import PLACES, ROWS, Subject, UndeclaredError, difference, tensors
from linbench.engine.stack import Stack
from linbench.experiments.loading import theirs
from linbench.kernels.operators import preferring
from linbench.models.backbone import Backbone, Layer
from linbench.models.base import Mixer
from linbench.verify.gradients import gradients

Found = tuple[bool, str]

LENGTH = 70
"""More than a chunk of 64, and no multiple of anything."""

SPLITS = {LENGTH: (1, 5, 35, 63, 64, 65, LENGTH - 1), 300: (200,)}
"""By the length of sequences, the tokens from which on others are put: the longer holds several blocks of
128, and is split within the second."""

TRAINED = 64
"""The length that stability is judged from."""


def construction(subject: Subject) -> Found:
    """It can be built as the first and as the second of two layers."""
    first, second = (sum(p.numel() for p in subject.build(index=index).parameters()) for index in PLACES)
    return True, f"{first:,} parameters" + (f", {second:,} in the second layer" if second != first else "")


@torch.no_grad()
def shapes(subject: Subject) -> Found:
    """y has the shape and dtype of x in float32, at any length and batch; in float64 and bfloat16, too, or it
    is noted that these are not taken."""
    notes = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        try:
            wrong = _misshapen(subject, dtype)
        except Exception as error:
            if dtype == torch.float32:
                raise
            wrong = theirs(error)
        if wrong and dtype == torch.float32:
            return False, wrong
        notes += [f"not {_name(dtype)}: {wrong}"] if wrong else []
    held = f"3 shapes, {'float32' if notes else '3 dtypes'}"
    if subject.precision != torch.float64:
        notes.append(f"judged as {_name(subject.precision)}, in which it computes")
    return True, "; ".join([held, *notes])


def _misshapen(subject: Subject, dtype: torch.dtype) -> str:
    """Say what is wrong with outputs in a dtype; empty: nothing."""
    mixer = subject.build(dtype)
    for rows, length in ((1, 1), (ROWS, 7), (3, 65)):
        x = subject.tokens(length, dtype, rows=rows)
        y = mixer(x).y
        if y.shape != x.shape or y.dtype != dtype or not y.isfinite().all():
            finite = "" if y.isfinite().all() else ", not finite"
            return f"{list(x.shape)} in {_name(dtype)} gives {list(y.shape)} in {_name(y.dtype)}{finite}"
    return ""


@torch.no_grad()
def causality(subject: Subject) -> Found:
    """Other tokens from t on leave every output before t as it was, in training, too, bit for bit (or within
    rounding, where a mixer declares that, and of an nn.Module, which cannot)."""
    exact = subject.cls.causality == "exact" and not subject.cls.opaque
    limit, worst = 0.0 if exact else subject.limit(1e-5, 1e-5), 0.0
    for index, training, (length, splits) in itertools.product(PLACES, (False, True), SPLITS.items()):
        called, said = partial(subject.called, index=index, training=training), _said(index, training)
        x = subject.tokens(length, torch.float32)
        whole = called(x)
        for t in splits:
            other = torch.cat([x[:, :t], 3 * subject.tokens(length, torch.float32, seed=t)[:, t:] + 1], dim=1)
            y = called(other)
            if not training and torch.equal(y[:, t:], whole[:, t:]):  # training may leave a whole layer out
                return False, f"outputs from {t} on do not depend on the tokens there{said}"
            if (moved := difference(y[:, :t], whole[:, :t], whole)) > limit:
                return False, f"outputs before {t} of {length} move by {moved:.1e}{said}"
            worst = max(moved, worst)
    return True, f"moves by {worst:.1e}" if worst else "identical bits"


@torch.no_grad()
def streaming(subject: Subject) -> Found:
    """A sequence stopped anywhere and carried on, token by token too, by prefill and decode too, gives what
    it gives as a whole: to 1e-9 in float64."""
    x, pick = subject.tokens(LENGTH), random.Random(0)
    cuts = [
        [],
        list(range(1, LENGTH)),
        [1],
        [63],
        [64],
        [65],
        *(sorted(pick.sample(range(1, LENGTH), count)) for count in (1, 2, 3, 5)),
    ]
    errors = {}
    for index, decoding in itertools.product(PLACES, (False, True)):
        mixer = subject.placed(index)
        how = (", by prefill and decode" if decoding else "") + PLACES[index]
        kinds, after = (
            list(map(_kind, tensors(held)))
            for held in (
                subject.fresh(mixer, ROWS, LENGTH),
                subject.streamed(mixer, x, [9], decoding=decoding)[1],
            )
        )
        if kinds != after:
            return False, f"the state was {kinds} and became {after}{how}"
        whole = mixer(x).y
        for points in cuts:
            at = (
                "token by token"
                if len(points) > 6
                else f"stopped at {', '.join(map(str, points)) or 'the end only'}"
            )
            errors[f", {at}{how}"] = difference(
                subject.streamed(mixer, x, points, decoding=decoding)[0], whole
            )
        if _writes(mixer, x, subject.fresh(mixer, ROWS, LENGTH)):
            return False, f"forward writes into the state that it is given{PLACES[index]}"
    held, found = _within(subject.limit(1e-9), errors, "differs")
    return held, f"{found} over {len(errors)} ways" if held else found


@torch.no_grad()
def forms(subject: Subject) -> Found:
    """The fast form of its kernels gives what their step-by-step references give: to 1e-9 in float64."""
    if not subject.cls.families:
        raise UndeclaredError("it computes with no kernel family of linbench")
    x, errors = subject.tokens(LENGTH), {}
    for index, said in PLACES.items():
        mixer = subject.placed(index)
        with preferring("reference") as asked:
            slow = mixer(x).y
        if not asked:
            raise UndeclaredError("its kernels have one form")
        errors[said] = difference(mixer(x).y, slow)
    return _within(subject.limit(1e-9), errors, "differs")


@torch.no_grad()
def neighbours(subject: Subject) -> Found:
    """A row of a batch does not depend on the others, in training, too, nor on its place among them: to 1e-12
    in float64."""
    x, errors = subject.tokens(LENGTH, rows=3), {}
    changed = torch.cat([x[:1], 5 * x[1:] + 1])
    for index, training in itertools.product(PLACES, (False, True)):
        called = partial(subject.called, index=index, training=training)
        whole = called(x)
        found = [difference(called(changed)[:1], whole[:1])]
        if not training:  # where each row may be given random numbers of its own
            found.append(difference(called(x.flip(0)).flip(0), whole))
            found += [difference(called(x[row : row + 1]), whole[row : row + 1]) for row in range(3)]
        errors[_said(index, training)] = max(found)
    return _within(subject.limit(1e-12, 1e-5), errors, "moves")


@torch.no_grad()
def state(subject: Subject) -> Found:
    """The state holds as many floats as declared, at any length."""
    mixer, found = subject.build(), []
    for length in (1, 3, LENGTH):
        told = mixer.state_floats(length)
        if told is None:
            raise UndeclaredError("it declares no state size")
        held = _floats(subject.streamed(mixer, subject.tokens(length), [])[1])
        fresh = _floats(subject.fresh(mixer, ROWS, length))
        if not told.total == held == fresh:
            return False, f"at {length} tokens {told.total} declared, {fresh} at the start, {held} at the end"
        found.append(told.total)
    return (
        True,
        (
            f"{found[-1]:,}"
            f" floats{', constant in length' if found[0] == found[-1] else f' at {LENGTH} tokens, {found[0]:,} at one'}"
        ),
    )


@torch.no_grad()
def stability(subject: Subject) -> Found:
    """Ten times as long as trained with, outputs are at most four times as large, and at least an eighth."""
    # of independent tokens a sum grows by 3.6 from where it is looked at first, and a mean shrinks as much
    mixer = subject.build(torch.float32)
    x = subject.tokens(10 * TRAINED, torch.float32)
    try:
        y, state = subject.streamed(mixer, x, [])
    except UndeclaredError:
        y, state = mixer(x).y, None
    y = y.double()
    first, last = (
        float(part.square().mean().sqrt()) for part in (y[:, TRAINED // 2 : TRAINED], y[:, -TRAINED // 2 :])
    )
    held = max(
        (float(part.double().square().mean().sqrt()) for part in tensors(state) if part.is_floating_point()),
        default=0.0,
    )
    if not (y.isfinite().all() and first > 0):
        return False, "outputs are not finite, or all zero"
    told = f"root mean square {first:.2g} up to token {TRAINED}, {last:.2g} up to {10 * TRAINED}"
    return 1 / 8 <= last / first <= 4, told + (f", state {held:.2g}" if held else "")


def extremes(subject: Subject) -> Found:
    """Inputs of zeros, of one token again and again, 10,000 times as large and as small give finite outputs
    and gradients in float32."""
    x = subject.tokens(LENGTH, torch.float32)
    spike = x.clone()
    spike[:, 9] *= 1e4
    given = {
        "zeros": 0 * x,
        "one token": x[:, :1].expand_as(x),
        "large": 1e4 * x,
        "small": 1e-4 * x,
        "one large token": spike,
    }
    for name, inputs in given.items():
        mixer, leaf = subject.build(torch.float32), inputs.clone().requires_grad_()
        y = mixer(leaf).y
        found = torch.autograd.grad(
            y.sum(), [leaf, *(p for p in mixer.parameters() if p.requires_grad)], allow_unused=True
        )
        if not y.isfinite().all():
            return False, f"{name}: outputs are not finite"
        if not all(gradient.isfinite().all() for gradient in found if gradient is not None):
            return False, f"{name}: gradients are not finite"
    return True, f"finite for {', '.join(given)}"


@torch.no_grad()
def determinism(subject: Subject) -> Found:
    """Twice the same gives the same bits, and the same seed the same weights."""
    mixer, x = subject.build(torch.float32), subject.tokens(LENGTH, torch.float32)
    if not torch.equal(mixer(x).y, mixer(x).y):
        return False, "two calls differ"
    if not torch.equal(mixer(x).y, subject.build(torch.float32)(x).y):
        return False, "the same seed gives other weights"
    return True, "identical bits"


@torch.no_grad()
def replicas(subject: Subject) -> Found:
    """Trained as replicas in one program it computes what it computes alone; where it cannot be, runs go one
    after another."""
    x, places = (
        torch.randint(0, 16, (2, 3, 9), generator=torch.Generator().manual_seed(0)),
        torch.arange(9).expand(2, 3, -1),
    )
    settings = subject.cell.model.backbone.model_copy(update={"layers": 1})
    models = [
        Backbone(settings, [Layer(subject.cls, subject.layer.settings)], subject.cell.task.io, seed=seed)
        .to(subject.dtype)
        .eval()
        for seed in (0, 1)
    ]
    for seed, model in enumerate(models):
        model.mixers[0].load_state_dict(subject.build(seed=seed).state_dict())
    alone = torch.stack([model(x[i], places[i]) for i, model in enumerate(models)])
    try:
        together = Stack.of(models)(x, places)
    except Exception as error:
        raise UndeclaredError(f"cannot be stacked, so runs go one after another: {theirs(error)}") from None
    moved = difference(together, alone)
    return moved <= subject.limit(1e-9), f"stackable, differs by {moved:.1e}"


@torch.no_grad()
def autocast(subject: Subject) -> Found:
    """Under torch.autocast in bfloat16 outputs are finite and within a tenth of those in float32."""
    mixer, x = subject.build(torch.float32), subject.tokens(LENGTH, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        y = mixer(x).y
    whole = mixer(x).y.double()
    error = float((y.double() - whole).norm() / whole.norm())
    return error <= 0.1, f"differs by {error:.1e} of the norm"


LAWS: dict[str, Callable[[Subject], Found]] = {
    "construction": construction,
    "shapes and dtypes": shapes,
    "causality": causality,
    "streaming": streaming,
    "chunkwise form": forms,
    "gradients": gradients,
    "batch neighbours": neighbours,
    "state size": state,
    "ten times as long": stability,
    "extreme inputs": extremes,
    "determinism": determinism,
    "replicas": replicas,
    "autocast": autocast,
}


def _said(index: int, training: bool) -> str:
    return (", in training" if training else "") + PLACES[index]


def _within(limit: float, errors: dict[str, float], verb: str) -> Found:
    """Of errors by where they were found, from the plainest place on: the first that is too large and its
    place, or else the largest."""
    for said, error in errors.items():
        if error > limit:
            return False, f"{verb} by {error:.1e}{said}"
    return True, f"{verb} by {max(errors.values()):.1e}"


def _writes(mixer: Mixer, x: Tensor, state: Any) -> bool:
    """Whether forward changes a state that it is given: an empty one, and for one token or many a later
    one."""
    for part in torch.split(x, [9, 1, x.shape[1] - 10], dim=1):
        held = [each.clone() for each in tensors(state)]
        after = mixer(part, state).state
        if not all(map(torch.equal, held, tensors(state))):
            return True
        state = after
    return False


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _kind(part: Tensor) -> tuple[list[int], str]:
    return list(part.shape), _name(part.dtype)


def _floats(held: object) -> int:
    return sum(part.numel() for part in tensors(held) if part.is_floating_point()) // ROWS
