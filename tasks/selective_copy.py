"""MAD's selective copying."""

from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.tasks.base import Batch, Preset, Split
from linbench.tasks.blocks.explain import join_examples, shorten
from linbench.tasks.blocks.macro_accuracy import MacroAccuracy
from linbench.tasks.blocks.mad import mad_preset
from linbench.tasks.random import Stream


class SelectiveCopySettings(Settings):
    """Settings of the published generator."""

    vocab_size: int = Field(16, ge=4, description="tokens to copy, then a blank and a copy token")
    seq_len: int = Field(256, ge=4, description="length of a sequence")
    num_tokens_to_copy: int = Field(16, ge=1, description="tokens among the blanks, and answers at the end")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.seq_len <= 2 * self.num_tokens_to_copy + 1:
            raise ValueError(
                f"{self.num_tokens_to_copy} tokens, a copy token and as many answers leave no blank in"
                f" {self.seq_len} places; use seq_len = {2 * self.num_tokens_to_copy + 2} or more, or"
                f" num_tokens_to_copy = {self.seq_len // 2 - 1}"
            )
        return self


class SelectiveCopy(MacroAccuracy):
    """Among the blanks, which tokens were there, in their order?

    A few tokens stand among blanks, and after the copy token each of them is due in turn. A layer must select
    what matters by content and keep its order, whatever stands between. It does not tell whether a layer can
    find one thing by another.

    Layout: tokens are drawn from a small vocabulary. Each blank is put before a randomly chosen one, so that
    the last token stands just before the copy token; after that come as many blanks as there were tokens.

    Chance: any token to copy.

    MAD, Poli et al. 2024, arXiv:2403.17844, after Gu & Dao 2023, arXiv:2312.00752. The published generator
    places blanks by a global random state.
    """

    name = "selective_copy"
    skill = "filter"
    Settings = SelectiveCopySettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "8 tokens among 64, fresh examples",
            task={"seq_len": 64, "num_tokens_to_copy": 8},
            protocol={"tokens": 2_000_000, "lr": 3e-3},
        ),
        "mamba": Preset(
            "2312.00752: 16 tokens in 4096, two layers of width 64, 400,000 steps of 64 sequences; blanks are"
            " placed as MAD places them, and the copy token stands once, where there every answer has one",
            task={"seq_len": 4096},
            model={"layers": 2, "d_model": 64},
            protocol={"lr": 1e-4, "batch_size": 64, "tokens": 400_000 * 64 * 4096},
        ),
        "mad": mad_preset("the baseline, 16 tokens among 256"),
        "mad-vocab-128": mad_preset("16 tokens of 126 kinds", vocab_size=128),
        "mad-length-1024": mad_preset("16 tokens among 1024", seq_len=1024),
        "mad-copy-96": mad_preset("96 tokens among 256", num_tokens_to_copy=96),
    }

    settings: SelectiveCopySettings

    @property
    def answers(self) -> int:
        """One for each token to copy."""
        return self.settings.num_tokens_to_copy

    def chance(self) -> float:
        """Return the accuracy of any token to copy, blind to the sequence, all of which is asked for."""
        return 1 / (self.settings.vocab_size - 2)

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        order: of the token among those to copy. distance: from the token to where it is asked for.
        """
        return {"order": self.answers, "distance": self.seq_len}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; a token's position is the number of tokens and blanks before it."""
        s, rows, count = self.settings, index.shape[0], self.settings.num_tokens_to_copy
        stream = Stream.of(index, seed=seed, split=split)
        order = torch.arange(count, device=index.device)
        tokens = stream.child("tokens").integers(count, below=s.vocab_size - 2)
        blanks = stream.child("blanks").integers(s.seq_len - 2 * count - 1, below=count)
        before = torch.zeros_like(tokens).scatter_add(1, blanks, torch.ones_like(blanks)).cumsum(dim=1)
        places = order + before
        inputs = torch.full(
            (rows, s.seq_len), s.vocab_size - 2, dtype=torch.int64, device=index.device
        ).scatter(1, places, tokens)
        inputs[:, -count - 1] = s.vocab_size - 1
        positions = (s.seq_len - count + order).repeat(rows, 1)
        return Batch(
            inputs, positions, tokens, {"order": order.repeat(rows, 1), "distance": positions - places}
        )

    def solve(self, batch: Batch) -> Tensor:
        """Leave out blanks and the copy token; the first answer is the first of what is left."""
        order = batch.positions - (self.seq_len - self.answers)
        kept = [
            [token for token in tokens if token < self.settings.vocab_size - 2]
            for tokens in batch.inputs.tolist()
        ]
        return torch.tensor(kept, device=order.device).gather(1, order)

    def explain(self, batch: Batch, row: int) -> str:
        """Return which tokens stand where, and what is due after the copy token."""
        blank, tokens = self.settings.vocab_size - 2, batch.inputs[row].tolist()
        there = [f"{token} at position {at}" for at, token in enumerate(tokens) if token < blank]
        due = [
            f"{target} at position {at}"
            for at, target in zip(batch.positions[row].tolist(), batch.targets[row].tolist(), strict=True)
        ]
        return (
            f"The sequence is {shorten(tokens)}. {blank} is a blank; among the blanks stand"
            f" {join_examples(there)}. At position {tokens.index(blank + 1)} stands {blank + 1}, which asks"
            f" for a copy: the answers are {join_examples(due)}."
        )
