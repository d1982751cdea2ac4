"""The laws, each from a subject to whether it holds and what was found."""

import random
from collections.abc import Callable

import torch
from torch import Tensor

from linbench.check.subject import ROWS, Subject, UndeclaredError, difference, tensors
from linbench.kernels.operators import preferring
from linbench.loading import theirs
from linbench.models.backbone import Backbone, Layer
from linbench.stack import Stack

Found = tuple[bool, str]

LENGTH = 70
"""More than a chunk of 64, and no multiple of anything."""

TRAINED = 64
"""The length that stability is judged from."""


@torch.no_grad()
def shapes(subject: Subject) -> Found:
    """y has the shape and dtype of x, in float32, float64 and bfloat16, at any length and batch."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        mixer = subject.build(dtype)
        for rows, length in ((1, 1), (ROWS, 7), (3, 65)):
            x = subject.tokens(length, dtype, rows=rows)
            y = mixer(x).y
            if y.shape != x.shape or y.dtype != dtype or not y.isfinite().all():
                return False, f"{list(x.shape)} in {_name(dtype)} gives {list(y.shape)} in {_name(y.dtype)}{'' if y.isfinite().all() else ', not finite'}"
    return True, "3 shapes, 3 dtypes"


@torch.no_grad()
def causality(subject: Subject) -> Found:
    """Other tokens from t on leave every output before t as it was, bit for bit (or within the rounding that a mixer declares)."""
    mixer, x = subject.build(torch.float32), subject.tokens(LENGTH, torch.float32)
    whole, worst, where = mixer(x).y, 0.0, 0
    for t in (1, 5, 35, 63, 64, 65, LENGTH - 1):
        other = torch.cat([x[:, :t], 3 * subject.tokens(LENGTH, torch.float32, seed=t)[:, t:] + 1], dim=1)
        y = mixer(other).y
        if torch.equal(y[:, t:], whole[:, t:]):
            return False, f"outputs from {t} on do not depend on the tokens there"
        moved = difference(y[:, :t], whole[:, :t])
        if moved > worst or not torch.equal(y[:, :t], whole[:, :t]):
            worst, where = max(moved, worst), t
    limit = 0.0 if subject.cls.causality == "exact" else 1e-5
    return worst <= limit and (where == 0 or limit > 0), f"outputs before {where} move by {worst:.1e}" if where else "identical bits"


@torch.no_grad()
def streaming(subject: Subject) -> Found:
    """A sequence stopped anywhere and carried on, token by token too, gives what it gives as a whole: to 1e-9 in float64."""
    mixer, x = subject.build(), subject.tokens(LENGTH)
    whole, pick = mixer(x).y, random.Random(0)
    cuts = [[], list(range(1, LENGTH)), [1], [63], [64], [65], *(sorted(pick.sample(range(1, LENGTH), count)) for count in (1, 2, 3, 5))]
    worst, points = max(((difference(subject.streamed(mixer, x, points)[0], whole), points) for points in cuts), key=lambda pair: pair[0])
    kinds = [_kind(part) for part in tensors(subject.fresh(mixer, ROWS, LENGTH))]
    after = [_kind(part) for part in tensors(subject.streamed(mixer, x, [9])[1])]
    if kinds != after:
        return False, f"the state was {kinds} and became {after}"
    at = "token by token" if len(points) > 6 else f"stopped at {', '.join(map(str, points)) or 'the end only'}"
    return worst <= 1e-9, f"differs by {worst:.1e}" + (f", {at}" if worst > 1e-9 else f" over {len(cuts)} ways")


@torch.no_grad()
def forms(subject: Subject) -> Found:
    """The fast form of its kernels gives what their step-by-step references give: to 1e-9 in float64."""
    if not subject.cls.families:
        raise UndeclaredError("it computes with no kernel family of linbench")
    mixer, x = subject.build(), subject.tokens(LENGTH)
    with preferring("reference") as asked:
        slow = mixer(x).y
    if not asked:
        raise UndeclaredError("its kernels have one form")
    error = difference(mixer(x).y, slow)
    return error <= 1e-9, f"differs by {error:.1e}"


def gradients(subject: Subject) -> Found:
    """Gradients of the input and of every parameter are finite and those of finite differences: to 1e-5 in float64."""
    mixer, x = subject.build(), subject.tokens(11).requires_grad_()
    weigh = subject.tokens(11, seed=1)
    trained = {"the input": x, **{name: p for name, p in mixer.named_parameters() if p.requires_grad}}

    def loss() -> Tensor:
        return torch.sum(mixer(x).y * weigh)

    found = dict(zip(trained, torch.autograd.grad(loss(), list(trained.values()), allow_unused=True), strict=True))
    if missing := [name for name, gradient in found.items() if gradient is None]:
        return False, f"{missing[0]} has no gradient"
    generator, errors = torch.Generator().manual_seed(0), {}
    for name, tensor in trained.items():
        way = torch.randn(tensor.shape, dtype=torch.float64, generator=generator)
        step = 1e-5 * float(tensor.detach().abs().mean().clamp(min=1e-2))
        with torch.no_grad():
            ends = []
            for sign in (1, -2, 1):
                tensor.add_(sign * step * way)
                ends.append(float(loss()))
        measured = (ends[0] - ends[1]) / (2 * step)
        told = float((found[name] * way).sum())
        size = max(abs(measured), float(found[name].norm() * way.norm()) * 1e-2, 1e-12)
        errors[name] = abs(told - measured) / size
    worst = max(errors, key=lambda name: errors[name] if errors[name] == errors[name] else float("inf"))
    return errors[worst] <= 1e-5, f"{worst} is off by {errors[worst]:.1e}" if len(errors) > 1 else f"{errors[worst]:.1e}"


@torch.no_grad()
def neighbours(subject: Subject) -> Found:
    """A row of a batch does not depend on the others, nor on its place among them: to 1e-12 in float64."""
    mixer, x = subject.build(), subject.tokens(LENGTH, rows=3)
    whole = mixer(x).y
    changed = torch.cat([x[:1], 5 * x[1:] + 1])
    errors = [difference(mixer(changed).y[:1], whole[:1]), difference(mixer(x.flip(0)).y.flip(0), whole)]
    errors += [difference(mixer(x[row : row + 1]).y, whole[row : row + 1]) for row in range(3)]
    return max(errors) <= 1e-12, f"moves by {max(errors):.1e}"


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
    return True, f"{found[-1]:,} floats{', constant in length' if found[0] == found[-1] else f' at {LENGTH} tokens, {found[0]:,} at one'}"


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
    first, last = (float(part.square().mean().sqrt()) for part in (y[:, TRAINED // 2 : TRAINED], y[:, -TRAINED // 2 :]))
    held = max((float(part.double().square().mean().sqrt()) for part in tensors(state) if part.is_floating_point()), default=0.0)
    if not (y.isfinite().all() and first > 0):
        return False, "outputs are not finite, or all zero"
    told = f"root mean square {first:.2g} up to token {TRAINED}, {last:.2g} up to {10 * TRAINED}"
    return 1 / 8 <= last / first <= 4, told + (f", state {held:.2g}" if held else "")


def extremes(subject: Subject) -> Found:
    """Inputs of zeros, of one token again and again, 10,000 times as large and as small give finite outputs and gradients in float32."""
    x = subject.tokens(LENGTH, torch.float32)
    spike = x.clone()
    spike[:, 9] *= 1e4
    given = {"zeros": 0 * x, "one token": x[:, :1].expand_as(x), "large": 1e4 * x, "small": 1e-4 * x, "one large token": spike}
    for name, inputs in given.items():
        mixer, leaf = subject.build(torch.float32), inputs.clone().requires_grad_()
        y = mixer(leaf).y
        found = torch.autograd.grad(y.sum(), [leaf, *(p for p in mixer.parameters() if p.requires_grad)], allow_unused=True)
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
    return torch.equal(mixer(x).y, subject.build(torch.float32)(x).y), "identical bits"


@torch.no_grad()
def replicas(subject: Subject) -> Found:
    """Trained as replicas in one program it computes what it computes alone; where it cannot be, runs go one after another."""
    x, places = torch.randint(0, 16, (2, 3, 9), generator=torch.Generator().manual_seed(0)), torch.arange(9).expand(2, 3, -1)
    settings = subject.cell.model.backbone.model_copy(update={"layers": 1})
    models = [Backbone(settings, [Layer(subject.cls, subject.layer.settings)], subject.cell.task.io, seed=seed).double().eval() for seed in (0, 1)]
    for seed, model in enumerate(models):
        model.mixers[0].load_state_dict(subject.build(seed=seed).state_dict())
    alone = torch.stack([model(x[i], places[i]) for i, model in enumerate(models)])
    try:
        together = Stack.of(models)(x, places)
    except Exception as error:
        raise UndeclaredError(f"cannot be stacked, so runs go one after another: {theirs(error)}") from None
    moved = difference(together, alone)
    return moved <= 1e-9, f"stackable, differs by {moved:.1e}"


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


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _kind(part: Tensor) -> tuple[list[int], str]:
    return list(part.shape), _name(part.dtype)


def _floats(held: object) -> int:
    return sum(part.numel() for part in tensors(held) if part.is_floating_point()) // ROWS
