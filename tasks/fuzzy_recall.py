"""MAD's fuzzy in-context recall."""

from math import perm
from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from linbench.tasks.base import Batch, Preset, Split
from linbench.tasks.blocks.chance import NEGLIGIBLE, add_ball, most_common_of_rest
from linbench.tasks.blocks.mad import mad_preset
from linbench.tasks.blocks.mad_recall import Pairs, Recall, RecallSettings
from linbench.tasks.random import Stream


class FuzzyRecallSettings(RecallSettings):
    """Settings of the published generator.

    The last token, or the last but the copy token, fills the beginning of a sequence.
    """

    always_special: ClassVar[int] = 1

    k_motif_size: int = Field(
        3, ge=1, description="tokens of a key: so many in tests, up to so many in training"
    )
    v_motif_size: int = Field(3, ge=1, description="tokens of a value, at most")

    @property
    def pad_token(self) -> int:
        """Token that fills the beginning."""
        return self.vocab_size - self.special

    @property
    def longest(self) -> int:
        """Tokens of the longest pair."""
        return self.k_motif_size + self.v_motif_size

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.k_motif_size > self.keys or self.v_motif_size > self.values:
            raise ValueError(
                f"tokens of a key or value are distinct, so {self.keys} tokens for keys and {self.values} for"
                f" values are too few for k_motif_size = {self.k_motif_size} and v_motif_size ="
                f" {self.v_motif_size}; use a larger vocab_size"
            )
        if self.seq_len <= 2 * self.longest:
            raise ValueError(
                f"a pair of up to {self.longest} tokens stands in a sequence twice, so seq_len must be at"
                f" least {2 * self.longest + 1}, not {self.seq_len}"
            )
        if (self.keys + 1) ** self.k_motif_size >= 2**63:
            raise ValueError(
                f"keys of {self.k_motif_size} tokens out of {self.keys} are too many to number; (tokens + 1)"
                " ** k_motif_size must stay below 2^63"
            )
        return self


class FuzzyRecall(Recall):
    """When keys and values are several tokens long, which value goes with this key?

    A sequence is a row of pairs. Whenever a key was shown before, the tokens of its value are due one by one,
    and in training those of keys as well. A layer must bind groups of adjacent tokens whose sizes differ. It
    does not tell whether this or the memory is at fault if a layer fails.

    Layout: a pair is a key and a value of distinct tokens in order, drawn anew for each key. A pair that is
    drawn beforehand stands at some place and again at the end. Values have 1 to v_motif_size tokens; keys
    have k_motif_size in tests but 1 to k_motif_size in training. Each token of a value stands in the input
    after it was asked for.

    Chance: naming the most common next token among the values of all keys shown so far.

    MAD, Poli et al. 2024, arXiv:2403.17844. As published, training learns every next token, filler and
    unknown keys included; tests ask for values only; and there is not always a place left for the first
    showing of the last pair, so that its value cannot be known: at the published baseline (vocabulary 16, 128
    tokens) in 2.3 % of sequences (22,951 of a million), which leaves the optimum at 0.992 of all answers. The
    published generator lists all groups of tokens; here they are drawn, with the same distribution.
    """

    name = "fuzzy_recall"
    skill = "remember"
    solved_by = ("suffix",)
    Settings = FuzzyRecallSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "up to 3 tokens for a key and a value, the published baseline trained on fresh examples",
            protocol={"tokens": 2_000_000, "lr": 3e-3},
        ),
        "mad": mad_preset("the baseline, up to 3 of 7 tokens for a key and 3 of 8 for a value"),
        "mad-vocab-128": mad_preset("up to 3 of 63 tokens for a key and 3 of 64 for a value", vocab_size=128),
        "mad-length-1024": mad_preset("1024 tokens", seq_len=1024),
    }

    settings: FuzzyRecallSettings

    @property
    def test_positions(self) -> range:
        """Any position, or those within the last value."""
        return range(
            0 if self.settings.multi_query else self.seq_len - self.settings.v_motif_size, self.seq_len
        )

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        seen: how often the key was shown before. distance: tokens since it was last shown. token: which of
        the value.
        """
        return super().slice_sizes() | {"token": self.settings.v_motif_size}

    def chance(self) -> float:
        """Return the accuracy of naming the most common next token among the values shown so far.

        Only values count that agree with the tokens said. At the end, where it is known how many tokens are
        due, only values of that size count, without the first pair, which is hardly ever the last. Sizes are
        as in `optimum`.
        """
        s, right, due = self.settings, 0.0, 0.0
        for size in range(1, s.v_motif_size + 1):
            asked = s.k_motif_size + size
            never, _ = self._expected_repeats(asked)
            again, last = self._expected_shown(asked)
            for token in range(s.v_motif_size):
                going_on, share = (
                    (s.v_motif_size - token) / s.v_motif_size,
                    1 / s.v_motif_size / perm(s.values, token),
                )
                right += going_on * _expected_right(
                    again, share=share * (s.v_motif_size - token), values=s.values - token
                )
                due += going_on * float(again.sum())
                if token < size:
                    right += (1 - never) * _expected_right(
                        last, share=share, values=s.values - token
                    ) + never / (s.values - token)
                    due += 1
        return right / due

    def _expected_shown(self, asked: int) -> tuple[Tensor, Tensor]:
        """Return how many pairs come back, and the distribution of the last one, by keys shown before.

        Args:
            asked: tokens of the last pair.
        """
        s = self.settings
        end, keys = s.seq_len - asked - s.longest, perm(s.keys, s.k_motif_size)
        begin = nn.functional.pad(torch.ones(1, dtype=torch.float64), (0, end - 1))
        shown = nn.functional.pad(torch.ones(1, dtype=torch.float64), (0, end // (s.k_motif_size + 1) + 1))
        back = torch.arange(len(shown), dtype=torch.float64) / keys * (1 - s.frac_noise) * s.multi_query
        # but for the place where the last pair is put
        back = back * (1 - (s.k_motif_size + 1 + s.longest) / 2 / (s.seq_len - 2 * asked))
        again, last, asked_for = torch.zeros_like(shown), torch.zeros_like(shown), shown
        while (there := float(begin.sum())) > 0:
            sizes = range(s.k_motif_size + 1, s.longest + 1)
            begin = torch.stack([nn.functional.pad(begin, (size, 0))[:end] for size in sizes]).mean(dim=0)
            again, last = again + there * back * shown, last + (there - float(begin.sum())) * asked_for
            asked_for = add_ball(shown, keys)  # the pair that is asked for at last is no noise
            shown = add_ball(shown, keys, share=1 - s.frac_noise)
        return again, last

    def optimum(self) -> float:
        """Return 1, less the last value where its key was never shown before; a guess finds little of it.

        By `_expected_repeats`: at the published baseline this is 0.9919, where 500,000 examples (test split,
        seed 5) have 0.9917.
        """
        s = self.settings
        lost = due = 0.0
        for size in range(1, s.v_motif_size + 1):
            never, again = self._expected_repeats(s.k_motif_size + size)
            lost += never * sum(1 - 1 / (s.values - token) for token in range(size))
            due += size + (again * (s.v_motif_size + 1) / 2 if s.multi_query else 0)
        return 1 - lost / due

    def _expected_repeats(self, asked: int) -> tuple[float, float]:
        """Return how likely the last pair's key was never shown, and how many keys come back besides.

        Pairs begin as renewals do, with their sizes as intervals, which are taken to be independent; those of
        a key that comes back are not.

        Args:
            asked: tokens of the last pair.
        """
        s = self.settings
        draw = (1 - s.frac_noise) / perm(s.keys, s.k_motif_size)  # that a pair has a certain key
        # for where it is wanted; where the other pairs have begun
        room, end = s.seq_len - 2 * asked, s.seq_len - asked - s.longest
        # at every place the expected pairs that begin there: all; those before which its key was not drawn;
        # those that it is put in the place of
        begun, unseen, put = ([first] + [0.0] * (end - 1) for first in (1.0, 1.0, 1 / room))
        never = 0.0
        for at in range(end):
            for size in range(s.k_motif_size + 1, s.longest + 1):
                still = unseen[at] * (1 - draw) / s.v_motif_size
                if at + size < end:
                    begun[at + size] += begun[at] / s.v_motif_size
                    unseen[at + size] += still
                    put[at + size] += still * size / room
                else:
                    never += still * (room - 1 - at) / room
        mean = (s.k_motif_size + 1 + s.longest) / 2
        again = sum(
            (begun[at] - put[at]) * (1 - s.frac_noise) * (1 - (1 - draw) ** (at / mean)) for at in range(end)
        )
        return never, again

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples.

        As many pairs are drawn as may have room, and one for the end, which also replaces another one unless
        its key came by itself before. Those that have room are kept. A value follows from the name of its
        key, so that it comes back with it.
        """
        s = self.settings
        stream = Stream.of(index, seed=seed, split=split)
        least = 1 if split == "train" else s.k_motif_size
        count = 1 - (s.longest + least + 1 - s.seq_len) // (least + 1)  # were all of the least size
        pair = torch.arange(count, device=index.device)
        last = pair == count - 1

        key_sizes = least + stream.child("key sizes").integers(count, below=s.k_motif_size - least + 1)
        keys = torch.stack(
            [stream.child(f"key {i}").integers(count, below=s.keys - i) for i in range(s.k_motif_size)], dim=2
        )
        noise = stream.child("noise").happens(count, share=s.frac_noise) & ~last
        names = torch.where(noise, -1 - pair, self._names(keys, key_sizes))
        sizes = key_sizes + 1 + stream.child("value sizes").integers_at(names, below=s.v_motif_size)

        asked = sizes[:, -1:]
        place = stream.child("place").integers(1, below=s.seq_len - 2 * asked)
        turn = (sizes.cumsum(dim=1) - sizes < place)[:, :-1].sum(dim=1, keepdim=True)
        by_itself = ((names == names[:, -1:]) & (pair < turn)).any(dim=1, keepdim=True)
        here = (pair == turn) & ~by_itself
        noise &= ~here
        names, key_sizes, sizes = (torch.where(here, x[:, -1:], x) for x in (names, key_sizes, sizes))
        keys = torch.where(here[:, :, None], keys[:, -1:], keys)

        starts = sizes.cumsum(dim=1) - sizes
        kept = (starts < s.seq_len - asked - s.longest) & ~last
        value_names = torch.stack(
            [
                stream.child(f"value {i}").integers_at(names, below=s.values - i)
                for i in range(s.v_motif_size)
            ],
            dim=2,
        )
        end = s.seq_len + 1 - asked
        before = end - int(not s.multi_query) - (sizes * kept).sum(dim=1, keepdim=True)
        stands = kept | last
        pairs = Pairs(
            names=torch.where(stands, names, -1 - pair),
            begins=torch.where(last, end, before + starts),
            keys=self.replace_by_noise(
                _without_replacement(keys, s.keys), noise, stream.child("noise for keys")
            ),
            key_sizes=key_sizes * stands,
            values=self.replace_by_noise(
                s.keys + _without_replacement(value_names, s.values), noise, stream.child("noise for values")
            ),
            value_sizes=(sizes - key_sizes) * stands,
        )
        return self.make_batch(
            pairs, split, blank=s.pad_token, token=torch.arange(s.v_motif_size, device=index.device)
        )

    def _names(self, draws: Tensor, sizes: Tensor) -> Tensor:
        """Return a number [B, P] for each key, from its first `sizes` [B, P] draws [B, P, K]."""
        base = self.settings.keys + 1
        counted = torch.where(
            torch.arange(draws.shape[2], device=draws.device) < sizes[:, :, None], draws + 1, 0
        )
        return sum((counted[:, :, i] * base**i for i in range(draws.shape[2])), start=torch.zeros_like(sizes))


def _expected_right(shown: Tensor, *, share: float, values: int) -> float:
    """Return the sum over numbers of shown facts, with these weights, of how often a guess is right."""
    weights: list[float] = shown.tolist()
    return sum(
        p * most_common_of_rest(max(count, 1), share=share, values=values)
        for count, p in enumerate(weights)
        if p > NEGLIGIBLE
    )


def _without_replacement(draws: Tensor, size: int) -> Tensor:
    """Return W distinct numbers below `size` in order, from W draws, the i-th of them below size - i.

    As if each number, when it is drawn, left its place to the last that is still there.
    """
    found: list[Tensor] = []
    for i in range(draws.shape[-1]):
        number = draws[..., i]
        for j in reversed(range(i)):
            number = torch.where(number == draws[..., j], size - 1 - j, number)
        found.append(number)
    return torch.stack(found, dim=-1)
