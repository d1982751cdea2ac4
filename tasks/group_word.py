"""Words over a finite group."""

from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Prediction, Preset, Split, Task, WeightedMean
from linbench.tasks.blocks.groups import group, multiplication, prefix_products
from linbench.tasks.blocks.label_every import label_every_field, refuse_single, thin_labels
from linbench.tasks.blocks.lengths import Lengths, draw_length
from linbench.tasks.blocks.prefix_accuracy import prefix_correct
from linbench.tasks.blocks.words import words
from linbench.tasks.random import Stream, constant

SHOWN = 40
"""Elements that `explain` spells out."""


class GroupWordSettings(Lengths):
    """Settings: the group, which of its elements are letters, and how they become tokens."""

    group: str = Field(
        "S3", description="S, A, Z or D with a number, or a product such as A4xZ5; at most 120 elements"
    )
    min_length: int = Field(4, ge=1, description="elements in the shortest word")
    max_length: int = Field(
        24, ge=1, description="elements in the longest word; all lengths between are equally likely"
    )
    moves: int | None = Field(
        None,
        ge=2,
        description=(
            "which elements are letters: those that move at most this many points (2: swaps alone; null: all)"
        ),
    )
    tokens_per_element: int = Field(
        1, ge=1, description="tokens that stand for one element; the product is due at the last of them"
    )
    spread: Literal["empty", "repeat"] = Field(
        "empty",
        description="what stands at the tokens of an element after its first: empty tokens, or itself",
    )
    bos: bool = Field(False, description="whether a token of its own stands before the word")
    answer: Literal["products", "identity"] = Field(
        "products",
        description=(
            "products: the product so far, at every element; identity: at the end, whether the"
            " product of the whole word is the identity (0 for yes, 1 for no)"
        ),
    )
    label_every: int = label_every_field("products")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if len(group(self.group).moving(self.moves)) < 2:
            raise ValueError(
                f"no element of {self.group} except the identity moves {self.moves} points or fewer; use a"
                " larger moves, or null"
            )
        if self.answer == "identity" and (self.moves is not None or self.min_length < 2):
            raise ValueError(
                "answer = identity needs words of two elements or more, any of which may be the last, so"
                " min_length must be at least 2 and moves null"
            )
        if self.answer == "identity":
            refuse_single(self.label_every, "answer", "identity")
        return self


def _deltaproduct(name: str) -> Preset:
    return Preset(
        f"2502.10297: {name}, words of 128 elements, judged there at 512; one layer without convolution",
        task={"group": name, "min_length": 128, "max_length": 128},
        model={"layers": 1, "d_model": 128, "heads": 8, "head_dim": 32, "conv": 0},
        protocol={"examples": 100_000, "epochs": 100, "batch_size": 2048, "lr": 1e-3},
    )


def _grazzi(about: str, **task: Any) -> Preset:
    return Preset(
        f"2411.12537: {about}, judged there at 500 elements",
        task={"min_length": 32, "max_length": 32, **task},
        model={"layers": 1, "d_model": 128, "heads": 4, "conv": 0},
        protocol={
            "examples": 1_600_000,
            "epochs": 100,
            "batch_size": 512,
            "lr": 1e-4,
            "weight_decay": 0.01,
            "clip": 1.0,
        },
    )


def _merrill(name: str) -> Preset:
    return Preset(
        f"2404.08819: {name}, words of up to 20 elements; its k, from 6 to 20, is task.max_length, and it is"
        " judged there by words of k; epochs are ours",
        task={"group": name, "min_length": 2, "max_length": 20, "bos": True},
        protocol={
            "examples": 800_000,
            "epochs": 100,
            "batch_size": 512,
            "lr": 1e-4,
            "weight_decay": 0.01,
            "stop_at": 0.99,
        },
    )


class GroupWord(Task):
    """Can the product of all moves so far be tracked?

    At every element of a random word over a finite group, the product of all elements so far is due. The
    group decides how hard that is. Z60 commutes, so diagonal transitions are enough; S3 takes two reflections
    per token. A5 and S5 are not solvable, and it is believed that no fixed number of layers with attention or
    diagonal transitions can follow them at every length. It does not tell of recall, and at the lengths of
    training it does not tell of tracking either, since depth finds shortcuts there.

    Layout: elements are tokens 0 ... |G|-1, 0 the identity; each new one is multiplied from the right.

    Chance: the likeliest product of so many letters.

    Merrill et al. 2024, arXiv:2404.08819; letters, lengths and several tokens for an element as in Grazzi et
    al. 2024, arXiv:2411.12537, and Siems et al. 2025 (DeltaProduct), arXiv:2502.10297. Deviations: where
    lengths are mixed, shorter words are as likely as long ones, and where a length has from 64 to 2^24 words
    train, validation and test share none; shorter words are in every split.
    """

    name = "group_word"
    skill = "track"
    Settings = GroupWordSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "a few minutes on a laptop: the six permutations of three points, 4 to 24 of them",
            protocol={"lr": 3e-3, "tokens": 2_000_000},
        ),
        "quick-swaps": Preset(
            "swaps of two among five points (or none), 4 to 24 of them: one reflection a token, in the group"
            " of 120 that is not solvable",
            task={"group": "S5", "moves": 2},
            protocol={"lr": 3e-3, "tokens": 2_000_000},
        ),
        "quick-A5": Preset(
            "20 elements of A5, 1500 steps of 128: a setting in which the number of delta steps per token"
            " decides",
            task={"group": "A5", "min_length": 20, "max_length": 20},
            protocol={"batch_size": 128, "tokens": 1500 * 128 * 20},
        ),
        **{f"merrill-{name}": _merrill(name) for name in ("A5", "A4xZ5", "Z60")},
        **{f"deltaproduct-{name}": _deltaproduct(name) for name in ("S3", "S4", "A5", "S5")},
        "grazzi-S5": _grazzi("S5, words of 32 elements", group="S5"),
        "grazzi-S5-swaps": _grazzi("S5, words of 32 swaps (or the identity)", group="S5", moves=2),
        "grazzi-S5-three": _grazzi(
            "S5, words of 32 elements that move three points at most", group="S5", moves=3
        ),
        "grazzi-S5-tokens": _grazzi(
            "S5, words of 64 elements of four tokens",
            group="S5",
            min_length=64,
            max_length=64,
            tokens_per_element=4,
        ),
        "path-A5": Preset(
            "2505.16381: whether a word of A5 is the identity; how long words are, and the budget, are ours",
            task={"group": "A5", "min_length": 3, "max_length": 20, "answer": "identity"},
            protocol={"batch_size": 256, "tokens": 10_000 * 256 * 20, "lr": 1e-3},
        ),
        "grazzi-Z60": _grazzi("Z60, words of 32 elements", group="Z60"),
    }

    settings: GroupWordSettings

    @property
    def io(self) -> IO:
        """The elements, the empty token and, if there is one, the token before a word."""
        vocabulary = self._order + 1 + self.settings.bos
        return IO(vocabulary, vocabulary)

    @property
    def one_vocabulary(self) -> bool:
        """True if answers are elements, as the inputs are; yes and no are no elements."""
        return not self._identity

    @property
    def seq_len(self) -> int:
        """Tokens of the longest word."""
        return self.settings.bos + self.settings.max_length * self.settings.tokens_per_element

    @property
    def answers(self) -> int:
        """One per element of the longest word, or one."""
        return 1 if self._identity else self.settings.max_length

    @property
    def _identity(self) -> bool:
        return self.settings.answer == "identity"

    @property
    def _order(self) -> int:
        return group(self.settings.group).order

    @property
    def _letters(self) -> tuple[int, ...]:
        return group(self.settings.group).moving(self.settings.moves)

    def chance(self) -> float:
        """Return the accuracy of naming the likeliest product of so many letters.

        It is 1 / |G| where all elements are letters, more at the first places where they are few. Whether a
        word is the identity: 1 / 2, since all elements but one tell nothing.
        """
        if self._identity:
            return 1 / 2
        s, letters = self.settings, torch.tensor(self._letters)
        after = torch.tensor(group(s.group).table).view(self._order, self._order)[:, letters]
        product = torch.zeros(self._order, dtype=torch.float64).index_fill(0, torch.tensor(0), 1.0)
        best = words = 0.0
        for place in range(s.max_length):
            spread = (product / len(letters)).repeat_interleave(len(letters))
            product = torch.zeros_like(product).index_add(0, after.flatten(), spread)
            # of words that are so long
            share = min(1.0, (s.max_length - place) / (s.max_length - s.min_length + 1))
            best, words = best + share * float(product.max()), words + share
        return best / words

    def longer(self, times: int) -> dict[str, Any]:
        """Return settings with both lengths longer."""
        return self.settings.longer(times)

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        position: number of elements of the product.
        """
        return {"position": self.settings.max_length + 1}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; answers are in the order of the word."""
        s, device, letters = self.settings, index.device, self._letters
        stream = Stream.of(index, seed=seed, split=split)
        length = draw_length(stream, s.min_length, s.max_length)
        last = int(self._identity)  # which is chosen by the answer
        radices = (len(letters),) * s.max_length
        elements = constant(letters, device)[
            words(stream, length - last, radices=radices, shortest=s.min_length - last, split=split)
        ]
        if self._identity:
            elements = self._draw_last_element(stream, elements, length)
        place = torch.arange(s.max_length, device=device)
        used = place < length
        inputs = torch.where(used, elements, self._order)
        if s.tokens_per_element > 1:
            others = inputs if s.spread == "repeat" else torch.full_like(inputs, self._order)
            inputs = torch.stack([inputs] + [others] * (s.tokens_per_element - 1), dim=2).flatten(1)
        if s.bos:
            inputs = torch.cat([torch.full_like(length, self._order + 1), inputs], dim=1)
        ends = s.bos + s.tokens_per_element * (place + 1) - 1
        products = prefix_products(s.group, elements)
        if self._identity:
            end = length - 1
            return Batch(
                inputs,
                ends.expand_as(products).gather(1, end),
                (products.gather(1, end) != 0).long(),
                {"position": length},
            )
        positions, targets = torch.where(used, ends, 0), torch.where(used, products, IGNORE)
        batch = Batch(inputs, positions, targets, {"position": torch.where(used, place + 1, 0)})
        return thin_labels(batch, s.label_every, split)

    def _draw_last_element(self, stream: Stream, elements: Tensor, length: Tensor) -> Tensor:
        """Return elements [B, T] with the last of each word chosen: half of the words are the identity.

        Args:
            stream: randomness.
            elements: [B, T].
            length: of each word [B, 1].
        """
        before = prefix_products(self.settings.group, elements).gather(1, length - 2)
        undone = constant(group(self.settings.group).inverses, elements.device)[before]
        other = 1 + stream.child("other end").integers(1, below=self._order - 1)
        yes = stream.child("identity").happens(1, share=0.5)
        return elements.scatter(1, length - 1, torch.where(yes, undone, (undone + other) % self._order))

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return also "sequence": whether this and all earlier answers of the word are right."""
        return super().means(batch, prediction) | {"sequence": prefix_correct(batch, prediction)}

    def solve(self, batch: Batch) -> Tensor:
        """Multiply one element after the other."""
        s, order = self.settings, self._order
        table = multiplication(s.group, batch.inputs.device)
        state = torch.zeros_like(batch.inputs[:, 0])
        states = []
        for element in batch.inputs[:, s.bos :: s.tokens_per_element].unbind(dim=1):
            state = torch.where(element < order, table[state * order + element.clamp(max=order - 1)], state)
            states.append(state)
        products = torch.stack(states, dim=1).gather(
            1, (batch.positions - int(s.bos)).clamp(min=0) // s.tokens_per_element
        )
        return (products != 0).long() if self._identity else products

    def explain(self, batch: Batch, row: int) -> str:
        """Return the elements with the products that are due, or whether all of them are the identity.

        It also says what one of the elements does.
        """
        s, due = self.settings, batch.is_answer[row]
        word = [
            token
            for token in batch.inputs[row, int(s.bos) :: s.tokens_per_element].tolist()
            if token < self._order
        ]
        images = group(s.group).elements[word[0]]
        does = (
            ", ".join(f"{i} to {image}" for i, image in enumerate(images) if i != image)
            or "every point to itself"
        )
        each = (
            ""
            if s.tokens_per_element == 1
            else f", each of {s.tokens_per_element} tokens and asked for at the last of them"
        )
        more = f", and so on for {len(word)} elements" if len(word) > SHOWN else ""
        said = (
            f"A word over {s.group}, whose {self._order} elements are permutations: {word[0]}, for one, sends"
            f" {does}. "
        )
        positions, targets = batch.positions[row][due].tolist(), batch.targets[row][due].tolist()
        if self._identity:
            shown = ", ".join(map(str, word[:SHOWN]))
            yes = "it is the identity" if targets[0] == 0 else "it is not the identity"
            return (
                f"{said}Elements{each}: {shown}{more}. At position {positions[0]} the answer is {targets[0]}:"
                f" multiplied from the right, {yes}."
            )
        products = dict(zip(positions, targets, strict=True))
        ends = range(s.bos + s.tokens_per_element - 1, self.seq_len, s.tokens_per_element)
        pairs = ", ".join(
            f"{element} -> {products[at]}" if at in products else str(element)
            for at, element in list(zip(ends, word, strict=False))[:SHOWN]
        )
        return (
            f"{said}Elements{each}, with the product of all so far where it is due: {pairs}{more}. The first"
            f" is due at position {positions[0]}."
        )
