"""Shallow baselines: predictors that read little of a sequence, and no memory is needed to be as good.

A model that scores no more than they do has shown nothing. Most read one token from the sequence before an
answer. Where answers are tokens of the input and that token is one, they say it; otherwise they say the
commonest label of training examples in which they read the same token.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.engine.pretrained.prompt import tells_answers
from linbench.tasks.base import Split, Task

__all__ = ["BASELINES", "Shallow", "applies", "shallow_scores"]

TEST_EXAMPLES, TRAIN_ANSWERS = 4096, 1 << 16
"""Examples that baselines are scored on, and answers they learn from; fewer where sequences are long."""

NUMBERS = 1 << 22
"""Tokens of test or training examples, at most."""

PLACES = 4
"""Answers of a row that are looked at, drawn from all that are due, at most."""

WEIGHTS = 1 << 22
"""Weights of the bag of tokens, at most. With more it is not fitted."""

CONTEXT = 4
"""Tokens of the longest context that `ngram` and `suffix` compare."""

BASELINES = {
    "prior": "the commonest label of this place among the answers",
    "position": "the commonest label at this position",
    "question": "the commonest label after this token",
    "ngram": "the commonest label after the last four tokens, or as many as were seen twice",
    "first": "the first answer that stands in the sequence",
    "last": "the last one",
    "mode": "the one that stands there most often",
    "rarest": "the one that stands there least often",
    "repeat": "the answer that was shown after the question before this one",
    "suffix": "what followed the last tokens, up to four, when as many as possible stood there before",
    "beside_last": "what followed this token when it stood there last",
    "beside_first": "what followed this token when it stood there first",
    "bag": "a linear classifier of the counts of all tokens, and of which two are the last",
}
"""Words for what each baseline says, by its name."""


class Contexts(NamedTuple):
    """Answers that are due, each with what a model may see there.

    tokens: inputs [M, T], of which those after the position must not be used. position, place: of the answer
    in the row, and among its answers [M]. shown: the answer to the question before, if it stands after that
    question, else -1 [M]. label: [M].
    """

    tokens: Tensor
    position: Tensor
    place: Tensor
    shown: Tensor
    label: Tensor


class Shallow(NamedTuple):
    """The score of a baseline.

    accuracy: on test examples. answers: number of answers that it was scored on.
    """

    accuracy: float
    answers: int


def applies(task: Task) -> bool:
    """Tell whether a task has shallow baselines.

    Its inputs and answers are ids, and each answer is read where it is due.
    """
    io = task.io
    return io.vocab_in is not None and io.vocab_out is not None and io.readout == "place"


def shallow_scores(task: Task, *, seed: int = 0) -> dict[str, Shallow]:
    """Return the accuracy of each shallow baseline by name, on test examples of a seed.

    There are none for which `applies` is false, and no `bag` where there are very many tokens.
    """
    if not applies(task) or task.io.vocab_out is None:
        return {}
    train = _contexts(task, seed, "train", TRAIN_ANSWERS // min(PLACES, task.answers))
    test = _contexts(task, seed, "test", TEST_EXAMPLES)
    is_answer = _answers_among_tokens(task, train)
    prior = CommonestLabel(train.place, train.label)(test.place)
    prior = torch.where(prior < 0, train.label.mode().values, prior)
    said = {"prior": prior}
    for name, key in _KEYS.items():
        said[name] = CommonestLabel(key(train), train.label)(key(test))
    for name, read in _READINGS.items():
        known, asked = read(train, is_answer), read(test, is_answer)
        learned = CommonestLabel(known, train.label)(asked)
        own = None if is_answer is None else (asked >= 0) & is_answer[asked]
        said[name] = learned if own is None else torch.where(own, asked, learned)
    said["ngram"] = _ngram(train, test)
    tokens = 1 + int(max(train.tokens.max(), test.tokens.max()))
    if 3 * tokens * task.io.vocab_out <= WEIGHTS:
        said["bag"] = _bag(train, test, tokens, task.io.vocab_out)
    right = {name: torch.where(x < 0, prior, x) == test.label for name, x in said.items()}
    return {
        name: Shallow(float(right[name].double().mean()), len(test.label))
        for name in BASELINES
        if name in right
    }


def _contexts(task: Task, seed: int, split: Split, examples: int) -> Contexts:
    """Return answers of a split, a few of each row."""
    generator = torch.Generator().manual_seed(seed)
    parts = []
    count = max(256, min(examples, NUMBERS // task.seq_len))
    for index in torch.split(torch.arange(count), max(1, NUMBERS // task.seq_len // 8)):
        batch = task.sample(index, seed=seed, split=split)
        tokens = batch.inputs
        if tokens.dim() == 3:  # of ids whose embeddings are summed, one id for each combination
            tokens = (tokens * (task.io.vocab_in or 1) ** torch.arange(tokens.shape[2])).sum(dim=2)
        in_time = torch.where(batch.is_answer, batch.positions, task.seq_len).argsort(dim=1, stable=True)
        due, position, label = (
            x.gather(1, in_time) for x in (batch.is_answer, batch.positions, batch.targets)
        )
        # where an answer follows its question only now and then, that is by accident
        shown = torch.where(due & tells_answers(batch._replace(inputs=tokens)), label, -1).roll(1, dims=1)
        shown[:, 0] = -1
        drawn = torch.where(due, torch.rand(due.shape, generator=generator), -1.0)
        chosen = drawn.topk(min(PLACES, due.shape[1]), dim=1).indices
        row, column = due.gather(1, chosen).nonzero(as_tuple=True)
        place = chosen[row, column]
        parts.append((tokens[row], position[row, place], place, shown[row, place], label[row, place]))
    return Contexts(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _answers_among_tokens(task: Task, train: Contexts) -> Tensor | None:
    """Tell of each token whether it is an answer in training [ids]; None if no token stands for an answer."""
    if not task.one_vocabulary or task.io.vocab_in is None:
        return None
    tokens = max(task.io.vocab_in, 1 + int(train.tokens.max()))
    return torch.zeros(tokens, dtype=torch.bool).index_fill(0, torch.unique(train.label), True)


class CommonestLabel:
    """The commonest label of each key, as counted in training."""

    def __init__(self, keys: Tensor, labels: Tensor, *, least: int = 1) -> None:
        """Count.

        Args:
            keys: integers [M], of which negative ones are left out.
            labels: integers [M].
            least: a key that was seen less often is unknown.
        """
        labels, keys = labels[keys >= 0], keys[keys >= 0]
        self.keys, which, seen = torch.unique(keys, return_inverse=True, return_counts=True)
        kinds = 1 + int(labels.max()) if len(labels) else 1
        pairs, counts = torch.unique(which * kinds + labels, return_counts=True)
        pairs = pairs[counts.argsort(stable=True)]
        pairs = pairs[(pairs // kinds).argsort(stable=True)]  # of each key's labels the commonest is the last
        _, labels_of_key = torch.unique_consecutive(pairs // kinds, return_counts=True)
        commonest = pairs[labels_of_key.cumsum(0) - 1] % kinds
        self.labels = torch.where(seen >= least, commonest, -1)

    def __call__(self, keys: Tensor) -> Tensor:
        """Return the label of each key, -1 for one that is unknown."""
        if not len(self.keys):
            return torch.full_like(keys, -1)
        at = torch.searchsorted(self.keys, keys.contiguous()).clamp(max=len(self.keys) - 1)
        return torch.where(self.keys[at] == keys, self.labels[at], -1)


def _at(x: Contexts, back: int = 0) -> Tensor:
    """Return the token at the answer's position, or one before it [M]; -1 where the sequence begins later."""
    at = x.position - back
    token = x.tokens.gather(1, at.clamp(min=0)[:, None])[:, 0]
    return torch.where(at >= 0, token, -1)


_KEYS: dict[str, Callable[[Contexts], Tensor]] = {
    "position": lambda x: x.position,
    "question": _at,
}
"""Keys for which a label is learned."""


def _among(x: Contexts, is_answer: Tensor | None) -> Tensor:
    """Tell of each token whether it is an answer that stands in the sequence so far [M, T]."""
    seen = torch.arange(x.tokens.shape[1]) <= x.position[:, None]
    return seen if is_answer is None else seen & is_answer[x.tokens]


def _first(x: Contexts, is_answer: Tensor | None) -> Tensor:
    return _token_where(x, _among(x, is_answer), last=False)


def _last(x: Contexts, is_answer: Tensor | None) -> Tensor:
    return _token_where(x, _among(x, is_answer), last=True)


def _token_where(x: Contexts, there: Tensor, *, last: bool, shift: int = 0) -> Tensor:
    """Return the token at the first or last place that is marked [M], or `shift` after it; -1 without one."""
    places = torch.arange(x.tokens.shape[1])
    at = torch.where(there, places, -1).amax(dim=1) if last else there.int().argmax(dim=1)
    token = x.tokens.gather(1, (at + shift).clamp(min=0)[:, None])[:, 0]
    return torch.where(there.any(dim=1), token, -1)


def _by_count(x: Contexts, is_answer: Tensor | None, *, most: bool) -> Tensor:
    """Return the token that is an answer and stands there most or least often [M]; -1 without one."""
    length = x.tokens.shape[1]
    tokens = torch.where(_among(x, is_answer), x.tokens, -1).sort(dim=1).values  # equal ones side by side
    at = torch.arange(length)
    begins, ends = tokens != tokens.roll(1, dims=1), tokens != tokens.roll(-1, dims=1)
    begins[:, 0], ends[:, -1] = True, True
    count = at + 1 - torch.where(begins, at, 0).cummax(dim=1).values
    counted = ends & (tokens >= 0)
    wanted = torch.where(counted, count if most else length + 1 - count, -1)
    return tokens.gather(1, wanted.argmax(dim=1, keepdim=True))[:, 0]


def _matches(x: Contexts, length: int) -> Tensor:
    """Mark where as many tokens end that are the last before the answer [M, T]; not the last themselves."""
    places = torch.arange(x.tokens.shape[1])
    there = (places < x.position[:, None]) & (places >= length - 1)
    for back in range(length):
        there &= x.tokens.roll(back, dims=1) == _at(x, back)[:, None]
    return there


def _suffix(x: Contexts, is_answer: Tensor | None) -> Tensor:
    """Return what followed the longest earlier match of the last tokens, the latest of its length."""
    found = torch.full_like(x.label, -1)
    for length in range(1, CONTEXT + 1):
        token = _token_where(x, _matches(x, length), last=True, shift=1)
        found = torch.where(token >= 0, token, found)
    return found


def _beside(x: Contexts, *, last: bool) -> Tensor:
    return _token_where(x, _matches(x, 1), last=last, shift=1)


_READINGS: dict[str, Callable[[Contexts, Tensor | None], Tensor]] = {
    "first": _first,
    "last": _last,
    "mode": lambda x, is_answer: _by_count(x, is_answer, most=True),
    "rarest": lambda x, is_answer: _by_count(x, is_answer, most=False),
    "repeat": lambda x, is_answer: x.shown,
    "suffix": _suffix,
    "beside_last": lambda x, is_answer: _beside(x, last=True),
    "beside_first": lambda x, is_answer: _beside(x, last=False),
}
"""A token that is read from the sequence [M], -1 for none. If it is no answer, a label is learned for it."""


def _ngram(train: Contexts, test: Contexts) -> Tensor:
    """Return the commonest label of the longest context that was seen twice [M]; -1 if none was."""
    said = torch.full_like(test.label, -1)
    known, asked = torch.zeros_like(train.label), torch.zeros_like(test.label)
    for back in range(CONTEXT):
        # contexts are told apart by a hash; where the sequence begins later there is a token -1
        known, asked = (_mixed(x, _at(of, back)) for x, of in ((known, train), (asked, test)))
        label = CommonestLabel(known, train.label, least=2)(asked)
        said = torch.where(label >= 0, label, said)
    return said


def _mixed(x: Tensor, token: Tensor) -> Tensor:
    """Return a hash of what was hashed so far and one more token, at least zero [M]."""
    mixed = (x ^ (token + 2)) * 0x2545F4914F6CDD1D
    return (mixed ^ (mixed >> 29)) & 0x7FFFFFFFFFFFFFFF


PASSES, BATCH, RATE = 2, 512, 0.03
"""Training of the classifier: passes over the training examples, examples of a step, rate of Adam. Chosen."""


def _bag(train: Contexts, test: Contexts, tokens: int, labels: int) -> Tensor:
    """Return what a linear classifier of counts of tokens and of the last two tokens says [M]."""
    weight = torch.zeros(3 * tokens, labels, requires_grad=True)
    bias = torch.zeros(labels, requires_grad=True)
    optimizer = torch.optim.Adam([weight, bias], lr=RATE)
    generator = torch.Generator().manual_seed(0)
    for _ in range(PASSES):
        for rows in torch.split(torch.randperm(len(train.label), generator=generator), BATCH):
            scores = _features(train, rows, tokens) @ weight + bias
            optimizer.zero_grad()
            torch.autograd.backward(F.cross_entropy(scores, train.label[rows]))
            optimizer.step()
    with torch.no_grad():
        parts = torch.split(torch.arange(len(test.label)), BATCH)
        return torch.cat([(_features(test, rows, tokens) @ weight + bias).argmax(dim=1) for rows in parts])


def _features(x: Contexts, rows: Tensor, tokens: int) -> Tensor:
    """Return counts of tokens so far, in units of the root of the length, and the last two [M, 3 tokens]."""
    of_rows = Contexts(*(each[rows] for each in x))
    counts = torch.zeros(len(rows), tokens)
    counts.scatter_add_(1, of_rows.tokens, _among(of_rows, None).float())
    counts = counts / of_rows.tokens.shape[1] ** 0.5
    last = [F.one_hot(_at(of_rows, back).clamp(min=0), tokens).float() for back in (0, 1)]
    return torch.cat([counts, *last], dim=1)
