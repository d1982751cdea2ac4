"""Parity."""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Prediction, Preset, Split, WeightedMean
from linbench.tasks.blocks.label_every import label_every_field, thin_labels
from linbench.tasks.blocks.last_or_cumulative import LastOrCumulative, LastOrCumulativeSettings
from linbench.tasks.blocks.lengths import draw_length
from linbench.tasks.blocks.prefix_accuracy import prefix_correct
from linbench.tasks.blocks.words import words
from linbench.tasks.random import Stream


class ParitySettings(LastOrCumulativeSettings):
    """Settings: lengths, and how often the parity is asked for."""

    min_length: int = Field(
        8,
        ge=2,
        description=(
            "tokens of the shortest sequence; with `last` it includes the empty token at which the"
            " parity is due"
        ),
    )
    max_length: int = Field(
        32, ge=2, description="tokens of the longest sequence; all lengths between are equally likely"
    )
    answer: Literal["last", "cumulative"] = Field(
        "cumulative",
        description=(
            "last: the parity of all bits, due at the empty token after them; cumulative: at every"
            " bit, the parity up to it"
        ),
    )
    label_every: int = label_every_field("parities")


class Parity(LastOrCumulative):
    """Has there been an odd number of ones?

    The parity of a sequence of uniform bits is due after its end or after every bit. It is one bit of state
    that every second token turns over on average. A linear recurrence can follow it at every length if its
    transitions have an eigenvalue of -1, and cannot if all are in [0, 1]. It does not tell of more than one
    bit of state, and at the lengths of training it does not tell of tracking either, since a count or a table
    of short words is enough there.

    Layout: bits are tokens 1 and 2, and so are the answers. It is the least state that a layer can track;
    train short, test long.

    Chance: either parity.

    Grazzi et al. 2024, arXiv:2411.12537, whose `last` this is; `cumulative` asks the same with more to learn
    from. Where a length has from 64 to 2^24 sequences (6 to 23 bits) train, validation and test share none of
    them; shorter ones, a tenth of `grazzi`, are in every split.
    """

    name = "parity"
    skill = "track"
    Settings = ParitySettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "a few minutes on a laptop: 8 to 32 bits, asked for after every one",
            protocol={"lr": 3e-3, "tokens": 2_000_000},
        ),
        "grazzi": Preset(
            "2411.12537: 3 to 40 tokens, asked for at the end; `grazzi-test` has the lengths it is judged by",
            task={"min_length": 3, "max_length": 40, "answer": "last"},
            model={"layers": 2, "d_model": 128, "heads": 4},
            protocol={
                "batch_size": 256,
                "tokens": 20_000 * 256 * 40,
                "lr": 1e-3,
                "warmup": 0.1,
                "weight_decay": 0.0,
                "test_examples": 8192,
            },
        ),
        "grazzi-test": Preset(
            "2411.12537: 40 to 256 tokens",
            task={"min_length": 40, "max_length": 256, "answer": "last"},
            model={"layers": 2, "d_model": 128, "heads": 4},
            protocol={
                "batch_size": 256,
                "tokens": 20_000 * 256 * 256,
                "lr": 1e-3,
                "warmup": 0.1,
                "weight_decay": 0.0,
                "test_examples": 8192,
            },
        ),
    }

    settings: ParitySettings

    @property
    def io(self) -> IO:
        """0 is empty, 1 and 2 are the bits and the answers."""
        return IO(3, 3)

    def chance(self) -> float:
        """Return 1 / 2: either parity."""
        return 1 / 2

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        length: number of bits of the parity.
        """
        return {"length": self.settings.max_length + 1}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; answers are in the order of the bits."""
        s = self.settings
        stream = Stream.of(index, seed=seed, split=split)
        ones = int(self._last)
        length = draw_length(stream, s.min_length, s.max_length) - ones
        bits = words(stream, length, radices=(2,) * s.max_length, shortest=s.min_length - ones, split=split)
        parity = bits.cumsum(dim=1) % 2
        place = torch.arange(s.max_length, device=index.device)
        used = place < length
        inputs = torch.where(used, 1 + bits, 0)
        if self._last:
            return Batch(inputs, length, 1 + parity.gather(1, length - 1), {"length": length})
        positions, targets = torch.where(used, place, 0), torch.where(used, 1 + parity, IGNORE)
        batch = Batch(inputs, positions, targets, {"length": torch.where(used, place + 1, 0)})
        return thin_labels(batch, s.label_every, split)

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return also "sequence" if every bit is asked for: whether all answers so far are right."""
        means = super().means(batch, prediction)
        return means if self._last else means | {"sequence": prefix_correct(batch, prediction)}

    def solve(self, batch: Batch) -> Tensor:
        """Keep a bit that every one turns over."""
        odd = torch.zeros_like(batch.inputs[:, 0], dtype=torch.bool)
        states = []
        for token in batch.inputs.unbind(dim=1):
            odd = odd ^ (token == 2)
            states.append(odd)
        return 1 + torch.stack(states, dim=1).long().gather(1, batch.positions)

    def explain(self, batch: Batch, row: int) -> str:
        """Return the bits, and the parities that are due."""
        due = batch.is_answer[row]
        targets, length = batch.targets[row][due].tolist(), int(batch.slices["length"][row].max())
        bits = "".join(str(token - 1) for token in batch.inputs[row, :length].tolist())
        said = f"The bits are {bits}, as tokens 1 for 0 and 2 for 1; all tokens after them are empty. "
        if self._last:
            ones = bits.count("1")
            return (
                f"{said}At position {length}, which is empty, the answer is {targets[0]}: {ones} ones are an"
                f" {'odd' if ones % 2 else 'even'} number."
            )
        parities = "".join(str(target - 1) for target in targets)
        if len(targets) == length:
            return f"{said}At every bit the parity up to it is due, coded likewise: {parities}."
        places = ", ".join(map(str, batch.positions[row][due].tolist()))
        return f"{said}The parity so far is due at positions {places}, coded likewise: {parities}."
