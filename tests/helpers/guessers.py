"""Guesses blind to the question or to the sequence, which measure what `Task.chance` promises."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import perm
from typing import Any

import torch
from torch import Tensor

from linbench.tasks.base import Batch, Prediction, Task
from linbench.tasks.blocks.names import read_words
from tests.helpers.story import told

Guesser = Callable[[Task, Batch, Batch], Tensor]
"""A function of a task, examples to learn from and examples to guess, that returns answers."""
Row = Callable[[Task, list[Any], list[int]], Sequence[Any]]


def commonest(values: Iterable[int]) -> int:
    counts = Counter(values)
    return max(counts, key=lambda value: (counts[value], -value)) if counts else 0


def by_row(guess: Row) -> Guesser:
    """Make a guesser of a function of one row's tokens and positions of answers, -1 where none is due."""

    def answers(task: Task, _: Batch, batch: Batch) -> Tensor:
        positions = batch.positions.masked_fill(~batch.is_answer, -1)
        return torch.tensor(
            [
                guess(task, tokens, at)
                for tokens, at in zip(batch.inputs.tolist(), positions.tolist(), strict=True)
            ]
        )

    return answers


def by_place(*names: str, token: bool = False) -> Guesser:
    """The target that was commonest in other examples at this place and position; or where these slices, and
    the token there, were the same."""

    def features(batch: Batch) -> Tensor:
        found = [batch.slices[name] for name in names] + (
            [batch.inputs.gather(1, batch.positions)] if token else []
        )
        return torch.stack(
            found or [torch.arange(batch.positions.shape[1]).expand_as(batch.positions), batch.positions],
            dim=2,
        )

    def answers(_: Task, learnt: Batch, batch: Batch) -> Tensor:
        size = int(learnt.targets.max()) + 1
        width = features(learnt).amax(dim=(0, 1)).maximum(features(batch).amax(dim=(0, 1))) + 1
        strides = torch.tensor([int(width[i + 1 :].prod()) for i in range(len(width))])
        seen, asked = ((features(x) * strides).sum(dim=2) for x in (learnt, batch))
        places, at = torch.unique(torch.cat([seen.flatten(), asked.flatten()]), return_inverse=True)
        due = learnt.is_answer.flatten()
        pairs, counts = torch.unique(
            at[: seen.numel()][due] * size + learnt.targets.flatten()[due], return_counts=True
        )
        pairs = pairs[counts.sort(stable=True).indices]  # so that of each place the commonest is written last
        best = dict(zip((pairs // size).tolist(), (pairs % size).tolist(), strict=True))
        found = torch.tensor([best.get(place, 0) for place in range(len(places))])
        return found[at[seen.numel() :]].view_as(asked)

    return answers


def by_slot(_: Task, learnt: Batch, batch: Batch) -> Tensor:
    """The value, in the end, of the pair that was asked for most often in this position. Places are in the
    order of the pairs."""
    count = learnt.positions.shape[1]
    pair = torch.arange(count).expand_as(learnt.positions)
    size = int(learnt.positions.max().maximum(batch.positions.max())) + 1
    counts = torch.zeros(size * count).index_add_(
        0, (learnt.positions * count + pair).flatten(), torch.ones(pair.numel())
    )
    return batch.targets.gather(1, counts.view(size, count).argmax(dim=1)[batch.positions])


def agreeing(candidates: Iterable[Sequence[int]], said: Sequence[int]) -> int:
    """The token that is commonest after `said`."""
    return commonest(
        tokens[len(said)]
        for tokens in candidates
        if len(tokens) > len(said) and list(tokens[: len(said)]) == list(said)
    )


def associative(task: Task, tokens: list[int], at: list[int]) -> list[int]:
    return [commonest(dict(zip(tokens[:-2:2], tokens[1:-2:2], strict=True)).values())] * len(at)


def in_context(task: Task, tokens: list[int], at: list[int]) -> list[int]:
    s, found = task.settings, dict.fromkeys(at, 0)
    held: dict[int, int] = {}
    for t in range(len(tokens)):
        if t in found:
            found[t] = commonest(held.values())
        if t % 2 and tokens[t - 1] < s.keys:
            held[tokens[t - 1]] = tokens[t]
    return [found[t] for t in at]


def fuzzy(task: Task, tokens: list[int], at: list[int]) -> list[int]:
    s, key, value, found = task.settings, (), (), dict.fromkeys(at, 0)
    known: dict[tuple[int, ...], tuple[int, ...]] = {}
    # so that the first pair, unless it is noise, does not come again as the last
    many = perm(s.keys, s.k_motif_size) > len(tokens)
    opens = next(token for token in tokens if token != s.pad_token)
    for t, token in enumerate(tokens):
        if s.keys <= token < s.keys + s.values:
            value += (token,)
        else:
            if value and key:
                known[key] = value
            key, value = (() if value or token >= s.keys else key), ()
            key += (token,) if token < s.keys else ()
        if t not in found:
            continue
        size = len(value) + len(tokens) - t  # of the value, if it is the last
        values = list(known.values())
        if size <= s.v_motif_size:
            values = [other for other in values[many and opens < s.keys :] if len(other) == size]
        found[t] = agreeing(values, value)
    return [found[t] for t in at]


def noise(task: Task, tokens: list[int], at: list[int]) -> list[int]:
    s = task.settings
    text = tokens[: 3 * s.facts + s.noise]
    told = [(text[t + 1], text[t + 2]) for t in range(len(text)) if text[t] == 0]
    if s.depth == 0:
        told = told[: s.facts]
    names = Counter(key for key, _ in told)
    return [commonest(value for key, value in told if names[key] == 1 and 4 <= key < 4 + s.keys)] * len(at)


def needle(task: Task, tokens: list[int], at: list[int]) -> list[int]:
    s, digits = task.settings, task.answers // (task.settings.queries * task.settings.values_per_key)
    text = s.hay + s.needles * s.values_per_key * s.needle
    length = s.needle - 1 - digits
    said = tokens[text:]
    told: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for t in range(text):
        if tokens[t] == 0:
            told[tuple(tokens[t + 1 : t + 1 + length])] += tokens[t + 1 + length : t + s.needle]
    candidates = [values for values in told.values() if len(values) == digits * s.values_per_key]
    answers: list[int] = []
    for query in range(s.queries):
        spoken = said[query * s.question + 1 + length : (query + 1) * s.question]
        known = [token for n, token in enumerate(spoken) if (n + 1) % (digits + 1)]
        answers += [agreeing(candidates, known[:n]) for n in range(digits * s.values_per_key)]
        if known in candidates:
            candidates.remove(known)
    return answers


def phonebook(task: Task, tokens: list[int], at: list[int]) -> list[int]:
    s = task.settings
    lines = [tokens[i : i + 3 + s.digits] for i in range(0, len(tokens), 3 + s.digits)]
    *shown, asked = lines[s.entries :]
    names = [line[1:3] for line in shown]
    entries = [line[3:] for line in lines[: s.entries] if line[1:3] not in names]
    return [agreeing(entries, asked[3 : 3 + n]) for n in range(s.digits)]


def capacity(task: Task, _: Batch, batch: Batch) -> Tensor:
    values = task.io.vocab_out or task.io.d_out or 0
    held = []
    for tokens in batch.inputs.tolist():
        last = {key: value - 1 - task.settings.keys for key, value in tokens if value}
        held.append([last[key] for key, value in tokens if value])
    shares = torch.nn.functional.one_hot(torch.tensor(held), values).double().mean(dim=1)
    answers = shares.argmax(dim=1) if task.settings.loss == "tokens" else shares
    return answers[:, None].expand_as(batch.targets)


def stack(task: Task, tokens: list[int], at: list[int]) -> list[int]:
    s, found = task.settings, dict.fromkeys(at, 0)
    held: dict[int, list[int]] = defaultdict(list)
    popped_last = set[int]()
    for t in range(len(tokens) % 3, len(tokens), 3):
        what, name, element = tokens[t : t + 3]
        if t + 1 in found:
            found[t + 1] = commonest(
                top
                for one, elements in held.items()
                if elements and (one in popped_last or not s.covered)
                for top in elements[-1:] * (1 + (len(elements) == s.depth))
            )
        if what == 1:
            held[name].append(element)
            popped_last.discard(name)
        else:
            held[name].pop()
            popped_last.add(name)
    return [found[t] for t in at]


def after_ngram(task: Task, tokens: list[int], at: list[int]) -> list[int]:
    s = task.settings
    start = 2 + s.ngram if s.variant == "prefix" else 1
    end = tokens.index(1, start)
    string = tokens[start:end]
    grams = [tuple(string[i : i + s.ngram]) for i in range(len(string) - s.ngram + 1)]
    alone = Counter(grams)
    windows = [
        string[i + s.ngram : i + s.ngram + s.answer]
        for i in range(len(string) - s.ngram - s.answer + 1)
        if alone[grams[i]] == 1
    ]
    said = tokens[at[0] + 1 : at[0] + 1 + s.answer]
    return [agreeing(windows, said[:n]) for n in range(s.answer)]


def copying(task: Task, learnt: Batch, batch: Batch) -> Tensor:
    variant = getattr(task.settings, "variant", "copy")
    return (by_place() if variant == "copy" else by_row(after_ngram))(task, learnt, batch)


def overwritten(task: Task, tokens: list[Any], at: list[int]) -> list[int]:
    """Answer with the value of the first key that was written.

    If several values are asked for, it is the first key that was given as many.
    """
    s = task.settings
    ids = [token if isinstance(token, list) else [token] for token in tokens]
    written, reset = [], 0
    for t in range(len(ids)):
        *key, value = ids[t] if s.width == 2 else [ids[i][0] for i in range(max(0, t - s.parts), t + 1)]
        if key and 4 <= key[-1] < s.first_value <= value < s.first_noise:
            written.append((t, tuple(key), value))
        if s.reset and ids[t][0] == s.reset_mark:
            reset = t
    answers = []
    for t in at:
        mark = ids[t][1] if s.width == 2 else ids[t - s.parts][0]
        back = {"none": 0, "n_back": s.n - 1, "return_all": max(0, mark - s.marks[-1] + len(s.marks) - 1)}[
            s.control
        ]
        held: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for when, key, value in written:
            if reset <= when < t:
                held[key].append(value)
        found = [values[-1 - back] for values in held.values() if len(values) > back]
        answers.append(found[0] if s.writes + s.decoys <= s.values or not found else commonest(found))
    return answers


def the_agent(_: Task, __: Batch, batch: Batch) -> Tensor:
    """Who did it, whichever role is asked for."""
    return torch.where(batch.slices["role"] == 0, batch.targets, batch.facts["swapped"])


def first_constant(task: Task, tokens: list[int], at: list[int]) -> list[int]:
    """Some constant; of bits with negations the commonest among the variables that may be asked for."""
    if task.settings.negations:
        return [_commonest_bit(task, tokens, at[0] - 1)] * len(at)
    return [next(token for token in tokens if token >= 3 + task.settings.names)] * len(at)


def _commonest_bit(task: Task, tokens: list[int], end: int) -> int:
    zero = 3 + task.settings.names
    said = [tokens[t : t + 3] for t in range(end % 3, end, 3)]
    known = {x: y - zero for x, _, y in said if y >= zero}
    roots = len(known)
    for _ in said:
        known |= {x: known[y] ^ (verb > 1) for x, verb, y in said if y in known}
    return zero + commonest(list(known.values())[roots:])


def nothing(_: Task, __: Batch, batch: Batch) -> Tensor:
    return torch.zeros_like(batch.targets)


def counted(task: Task, tokens: list[int], at: list[int]) -> list[int]:
    """The commonest count of all counters, whichever is asked for."""
    counters, counts = task.settings.counters, Counter[int]()
    for token in tokens[: at[0]]:
        kind, which = divmod(token - 1, counters)
        if token and kind == 0:
            counts[which] = 0
        elif token:
            counts[which] += 1
    return [commonest(counts.values())] * len(at)


def commonest_shown(_: Task, tokens: list[int], at: list[int]) -> list[int]:
    """The commonest of the values before the questions, whichever is asked for."""
    return [commonest(token for token in tokens[: at[0]] if token)] * len(at)


def of_some_key(_: Task, __: Batch, batch: Batch) -> Tensor:
    """The answer of the last key that was asked for, whichever this one is."""
    return batch.targets[:, -1:].expand_as(batch.targets)


def of_some_key_or_version(task: Task, learnt: Batch, batch: Batch) -> Tensor:
    """The same; if a version is named, the first value that counts and has it."""
    if task.settings.ask == "highest":
        return of_some_key(task, learnt, batch)
    counts, _, version, value = task._read(batch.inputs)  # type: ignore[attr-defined]
    named = batch.inputs.gather(1, batch.positions)
    matches = counts[:, None] & (version[:, None] == named[:, :, None])
    return value.gather(1, matches.long().argmax(dim=2))


def likeliest_place(task: Task, tokens: list[int], at: list[int]) -> list[int]:
    """The likeliest place of an object that may be asked for, which is carried in half of cases."""
    s, share = task.settings, Counter[int]()
    story = told(tokens[: 3 * s.facts], s.first_object, s.first_place)
    for carried in (True, False):
        fit = story.fit(carried=carried, before=s.before)
        for thing in fit:
            share[(story.before if s.before else story.place)[thing]] += 840 // len(fit)  # up to 8 divide it
    return [share.most_common(1)[0][0] if share else 0] * len(at)


def unnamed(task: Task, tokens: list[int], at: list[int]) -> list[int]:
    """The first word that was not yet named."""
    return [
        next(word for word in range(1, task.io.vocab_out or 0) if word not in tokens[at[0] : place + 1])
        for place in at
    ]


Words = list[tuple[int, ...]]


def read_so_far(
    task: Task, tokens: list[int], at: list[int], first: int
) -> Iterator[tuple[Words, tuple[int, ...]]]:
    """The words of the instance at each position, and the tokens of a name that is not at its end there."""
    read = list(read_words(tokens, task.settings, first))
    ends = [begun + len(word) for begun, word in read]
    for t in at:
        count = bisect_right(ends, max(t, 0) + 1)
        begin = max(n for n in range(count) if read[n][1] == (1,))
        yield [word for _, word in read[begin + 1 : count]], tuple(tokens[ends[count - 1] : t + 1])


def on_a_cycle(task: Task, tokens: list[int], at: list[int]) -> list[int]:
    """The commonest next token among names of the cycle, whatever is asked."""
    first, answers = 3 + task.settings.hops, []
    for words, said in read_so_far(task, tokens, at, first):
        asks = next((n for n, word in enumerate(words) if 3 <= word[0] < first), 0)
        answers.append(agreeing(set(words[:asks]), said))
    return answers


def in_order(task: Task, learnt: Batch, batch: Batch) -> Tensor:
    """The end, the query or another node that is not said, whichever was right most often at this step."""

    def another(query: bool) -> Row:
        def guess(task: Task, tokens: list[int], at: list[int]) -> list[int]:
            answers = []
            for words, said in read_so_far(task, tokens, at, 5):
                asks = words.index((2,)) if (2,) in words else 0
                asked = set(words[asks + 1 : asks + 2])
                left = set(words[:asks]) - set(words[asks + 3 :]) - (set() if said else asked)
                answers.append(agreeing(asked if query and not said else left, said))
            return answers

        return guess

    def options(batch: Batch) -> Tensor:
        found = [by_row(another(query))(task, learnt, batch) for query in (False, True)]
        return torch.stack([*found, torch.full_like(found[0], 4).where(batch.facts["prefix"] == 0, found[0])])

    few = Batch(
        *(x[:1000] for x in learnt[:3]),
        {name: x[:1000] for name, x in learnt.slices.items()},
        {name: x[:1000] for name, x in learnt.facts.items()},
    )
    scores = [
        task.score(few, Prediction(guess, torch.zeros(guess.shape)))["accuracy/step"][0]
        for guess in options(few)
    ]
    best = torch.stack(scores).argmax(dim=0)[batch.slices["step"]]
    return options(batch).gather(0, best[None])[0]


GUESSERS: dict[str, Guesser] = {
    **dict.fromkeys(("mqar", "compositional_mqar", "forgetting_mqar", "stacked_mqar"), by_slot),
    **dict.fromkeys(("in_context_recall", "noisy_recall"), by_row(in_context)),
    **dict.fromkeys(("copy", "palindrome"), copying),
    **dict.fromkeys(
        (
            "parity",
            "dyck",
            "flip_flop",
            "majority",
            "compression",
            "selective_copy",
            "induction",
            "lano",
            "mano",
            "memorization",
            "reachability",
        ),
        by_place(),
    ),
    "associative_recall": by_row(associative),
    "brevo": in_order,
    "capacity": capacity,
    "capo": by_place("value"),
    "counter": by_row(counted),
    "depo": by_row(on_a_cycle),
    "formal_language": by_place("word"),
    "frequent": by_row(unnamed),
    "fuzzy_recall": by_row(fuzzy),
    "group_word": by_place("position"),
    "modular_arithmetic": by_place("length"),
    "needle": by_row(needle),
    "noise_recall": by_row(noise),
    "object_locations": by_row(likeliest_place),
    "nth": by_row(commonest_shown),
    "p_hop": by_place("hops", token=True),
    "phonebook": by_row(phonebook),
    "regression": nothing,
    "role_binding": the_agent,
    "stack": by_row(stack),
    "stack_manipulation": by_place("place", "length"),
    "versioned_overwrite": of_some_key_or_version,
    "variable_chain": by_row(first_constant),
    "variable_overwrite": by_row(overwritten),
}
