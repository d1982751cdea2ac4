"""MAD's in-context recall, without and with noise."""

from collections.abc import Iterator
from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from linbench.tasks.base import Batch, Preset, Skill, Split
from linbench.tasks.blocks.chance import NEGLIGIBLE, add_ball, most_common_share
from linbench.tasks.blocks.mad import mad_preset
from linbench.tasks.blocks.mad_recall import Pairs, Recall, RecallSettings
from linbench.tasks.blocks.validation import refuse_odd
from linbench.tasks.random import Stream


class InContextRecallSettings(RecallSettings):
    """Settings. Published: no noise."""

    seq_len: int = Field(
        128,
        ge=6,
        description=(
            "length of a sequence; even; with multi_query its last token is the last answer, and no input"
        ),
    )

    @model_validator(mode="after")
    def _even(self) -> Self:
        refuse_odd("seq_len", self.seq_len, "a sequence is made of pairs")
        return self


class InContextRecall(Recall):
    """Given a few pairs that are shown again and again, which value goes with this key?

    A sequence is a row of pairs. Whenever a key was shown before, its value is due, which is the same
    throughout the sequence. A layer must bind a value to a key and find it again at any distance. It does not
    tell how much a layer can hold, since each fact is soon repeated.

    Layout: a key is drawn anew for every pair, its value once per sequence (keys may share one); the value
    stands in the input after it was asked for. The last key is drawn from those that were shown.

    Chance: naming the most common value among the keys shown so far.

    MAD, Poli et al. 2024, arXiv:2403.17844. As published, training learns every next token, keys included,
    which nothing tells; tests ask for values only. Where all other pairs happen to be noise, so that none
    could be asked for and the published generator fails, the first pair is not noise.
    """

    name = "in_context_recall"
    solved_by = ("suffix", "beside_last", "beside_first")
    skill: ClassVar[Skill] = "remember"
    Settings = InContextRecallSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "8 keys in 128 tokens, the published baseline trained on fresh examples",
            protocol={"tokens": 2_000_000, "lr": 3e-3},
        ),
        "mad": mad_preset("the baseline, 8 keys in 128 tokens"),
        "mad-vocab-128": mad_preset("64 keys", vocab_size=128),
        "mad-length-1024": mad_preset("1024 tokens", seq_len=1024),
    }

    settings: RecallSettings

    @property
    def seq_len(self) -> int:
        """Tokens of the input: without the last answer, unless a copy token takes its place."""
        return self.settings.seq_len - self.settings.multi_query

    @property
    def test_positions(self) -> range:
        """Every key, or the last."""
        return (
            range(0, self.seq_len, 2) if self.settings.multi_query else range(self.seq_len - 1, self.seq_len)
        )

    def chance(self) -> float:
        """Return the accuracy of naming the most common value among the keys shown so far.

        Each of these keys is equally likely to be asked for.
        """
        asked: list[float] = torch.stack(list(self._asked_probabilities())).sum(dim=0).tolist()
        return sum(
            p * most_common_share(count, self.settings.values)
            for count, p in enumerate(asked)
            if p > NEGLIGIBLE
        ) / sum(asked)

    def _asked_probabilities(self) -> Iterator[Tensor]:
        """Yield for every pair how likely it is asked for after 0, 1, ... keys were shown: [keys + 1]."""
        s, others = self.settings, self.settings.seq_len // 2 - 1
        told = 1 - s.frac_noise
        # the pair that is never noise is still to come
        free = nn.functional.pad(torch.ones(1, dtype=torch.float64), (0, s.keys))
        had = torch.zeros_like(free)
        known = torch.arange(s.keys + 1, dtype=torch.float64) / s.keys
        for pair in range(others):
            here = free / (others + 1)
            if s.multi_query:
                yield known * ((had + (others - pair) * here) * told + here)
            had = add_ball(had, s.keys, share=told) + add_ball(here, s.keys)
            free = add_ball(free, s.keys, share=told)
        last = had + free / (others + 1)
        # were all noise, the first is not
        yield torch.cat([torch.zeros_like(last[:1]), last[:1] + last[1:2], last[2:]])

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples.

        All pairs except the last are drawn; the last key is uniform among the keys that they show.
        """
        s = self.settings
        stream = Stream.of(index, seed=seed, split=split)
        count = s.seq_len // 2
        pair = torch.arange(count, device=index.device)
        keys = stream.child("keys").integers(count - 1, below=s.keys)
        noise = self._noise(stream, count - 1)
        lots = stream.child("lots").bits(keys) * s.keys + keys
        asked = lots.masked_fill(noise, torch.iinfo(torch.int64).max).amin(dim=1, keepdim=True) % s.keys
        keys, noise = torch.cat([keys, asked], dim=1), nn.functional.pad(noise, (0, 1))
        values = s.keys + stream.child("values").integers_at(keys, below=s.values)

        one = torch.ones_like(keys)
        begins = 2 * pair if s.multi_query else 2 * pair + (pair == count - 1)
        pairs = Pairs(
            names=torch.where(noise, -1 - pair, keys),
            begins=begins.expand_as(keys),
            keys=self.replace_by_noise(keys[:, :, None], noise, stream.child("noise for keys")),
            key_sizes=one,
            values=self.replace_by_noise(values[:, :, None], noise, stream.child("noise for values")),
            value_sizes=one,
        )
        return self.make_batch(pairs, split, blank=0)

    def _noise(self, stream: Stream, count: int) -> Tensor:
        """Return which pairs except the last are noise [B, count].

        One of all pairs is never noise; if that is the last and all others are, the first is not.
        """
        pair = torch.arange(count, device=stream.key.device)
        noise = stream.child("noise").happens(count, share=self.settings.frac_noise)
        noise &= pair != stream.child("never noise").integers(1, below=count + 1)
        return noise & ((pair > 0) | ~noise.all(dim=1, keepdim=True))


class NoisyRecallSettings(InContextRecallSettings):
    """Settings. Published: a fifth of all pairs are noise."""

    vocab_size: int = Field(32, ge=4, le=1 << 16, description="keys, values, noise and special tokens")
    noise_vocab_size: int = Field(16, ge=0, description="tokens that are neither keys nor values")
    frac_noise: float = Field(
        0.2, ge=0, lt=1, description="share of the pairs in whose place noise tokens stand"
    )


class NoisyRecall(InContextRecall):
    """When some of what stands between the pairs means nothing, which value goes with this key?

    It is in-context recall in which a share of the pairs is replaced by two tokens of noise from a vocabulary
    of their own. The layer must leave out what can be recognized as noise at once. It does not tell what a
    layer does about distractors that look like facts.

    MAD, Poli et al. 2024, arXiv:2403.17844; layout, chance and deviations as in `in_context_recall`.
    """

    name = "noisy_recall"
    skill = "filter"
    Settings = NoisyRecallSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "8 keys in 128 tokens, a fifth noise, the published baseline trained on fresh examples",
            protocol={"tokens": 2_000_000, "lr": 3e-3},
        ),
        "mad": mad_preset("the baseline, 8 keys in 128 tokens, a fifth of which are noise"),
        "mad-vocab-144": mad_preset("64 keys", vocab_size=144),
        "mad-length-1024": mad_preset("1024 tokens", seq_len=1024),
        "mad-noise-0.8": mad_preset("four fifths are noise", frac_noise=0.8),
    }
