"""MAD's compression."""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.tasks.base import Batch, Preset, Split
from linbench.tasks.blocks.explain import join_examples, shorten
from linbench.tasks.blocks.macro_accuracy import MacroAccuracy
from linbench.tasks.blocks.mad import mad_preset
from linbench.tasks.random import Stream


class CompressionSettings(Settings):
    """Settings of the published generator."""

    vocab_size: int = Field(16, ge=3, description="tokens to keep, then the one that ends a sequence")
    seq_len: int = Field(32, ge=2, description="length of a sequence")


class Compression(MacroAccuracy):
    """Can all the tokens be named again from the last token's vector alone?

    A decoder sees the number of a place and the model's output at the last token, and must name the token at
    that place. So a whole random sequence must go into one vector of the model's width, however much the
    layer's own state could hold. It does not tell how well anything is found again.

    Layout: random tokens, then one that ends the sequence; it is due as well, and always the same.

    Chance: the last token is known, and any other is guessed.

    MAD, Poli et al. 2024, arXiv:2403.17844. The published generator has settings for noise, but returns its
    examples without it: they have no effect there and are left out.
    """

    name = "compression"
    skill = "remember"
    Settings = CompressionSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "31 tokens of 15 kinds, the published baseline trained on fresh examples",
            protocol={"tokens": 2_000_000, "lr": 3e-3},
        ),
        "mad": mad_preset("the baseline, 31 tokens of 15 kinds"),
        "mad-vocab-128": mad_preset("31 tokens of 127 kinds", vocab_size=128),
        "mad-length-256": mad_preset("255 tokens", seq_len=256),
    }

    settings: CompressionSettings

    @property
    def io(self) -> IO:
        """One vocabulary for both; answers are decoded from the last token's vector."""
        return IO(self.settings.vocab_size, self.settings.vocab_size, readout="code")

    @property
    def answers(self) -> int:
        """Every token."""
        return self.settings.seq_len

    def chance(self) -> float:
        """Return the accuracy of naming the last token and guessing any other."""
        s = self.settings
        return (1 + (s.seq_len - 1) / (s.vocab_size - 1)) / s.seq_len

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        distance: from the token to the last.
        """
        return {"distance": self.settings.seq_len}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; targets are the inputs."""
        s = self.settings
        tokens = (
            Stream.of(index, seed=seed, split=split)
            .child("tokens")
            .integers(s.seq_len - 1, below=s.vocab_size - 1)
        )
        inputs = torch.nn.functional.pad(tokens, (0, 1), value=s.vocab_size - 1)
        positions = torch.arange(s.seq_len, device=index.device).repeat(len(index), 1)
        return Batch(inputs, positions, inputs.clone(), {"distance": s.seq_len - 1 - positions})

    def solve(self, batch: Batch) -> Tensor:
        """Return the token at that place."""
        return batch.inputs.gather(1, batch.positions)

    def explain(self, batch: Batch, row: int) -> str:
        """Return the sequence and what is due."""
        tokens = batch.inputs[row].tolist()
        due = [
            f"{target} for place {at}"
            for at, target in zip(batch.positions[row].tolist(), batch.targets[row].tolist(), strict=True)
        ]
        return (
            f"The sequence is {shorten(tokens)}. After its last token, {tokens[-1]}, all {len(due)} tokens"
            f" are due: {join_examples(due)}."
        )
