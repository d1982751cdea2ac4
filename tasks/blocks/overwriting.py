"""The settings of `variable_overwrite`, and the statements and tokens that follow from them."""

from typing import Literal, Self

from pydantic import Field, model_validator

from linbench.common.settings import Settings
from linbench.tasks.blocks.composite_keys import Cluster, CompositeKeys, Parts, Shared
from linbench.tasks.blocks.statements import statement_length
from linbench.tasks.blocks.write_schedule import Schedule

__all__ = ["ASK", "FIRST_KEY", "PAD", "SEP", "SET", "VariableOverwriteSettings"]

PAD, SET, ASK, SEP, FIRST_KEY = range(5)

_PLAIN = {"inert": ". .", "mention": "SEP key SEP", "reset": "RESET", "ask": "mark key ."}
_TEXTS = {
    "pair": {**_PLAIN, "write": "key value", "decoy": "key value"},
    "set": {**_PLAIN, "write": "SET key value SEP", "decoy": "SET key value SEP"},
    "fused": {
        "write": "key value",
        "decoy": "key value",
        "inert": ". .",
        "mention": "key SEP",
        "reset": "RESET PAD",
        "ask": "key mark . .",
    },
}
"""Words of each statement. In a fused statement every two words are one position.

A question ends in filler, so that no two questions are adjacent.
"""


class VariableOverwriteSettings(Settings):
    """Settings: how often and in which order variables are written, among what noise, and what is asked."""

    seq_len: int = Field(
        64,
        ge=4,
        description="length of a sequence; what the statements leave of it is filler, anywhere between them",
    )
    variables: int = Field(4, ge=2, le=1 << 16, description="keys that are written and asked for")
    overwrites: tuple[int, ...] = Field(
        (0, 1, 2, 4),
        min_length=1,
        description=(
            "how often a variable gets another value; variables take these counts in turn, so that each is"
            " present"
        ),
    )
    keys: int = Field(64, ge=2, description="key tokens, from which an example draws its variables")
    values: int = Field(
        64,
        ge=2,
        description=(
            "value tokens; if there are enough, all values of an example differ, else only those of each key"
        ),
    )
    noises: int = Field(
        64,
        ge=0,
        description="noise tokens that filler is drawn from, whatever `noise` is; 0: filler is padding",
    )
    schedule: Schedule = Field(
        "interleaved",
        description=(
            "order of writes: any; all first ones, then all second ones, and so on; all of one variable, then"
            " of the next"
        ),
    )
    statement: Literal["pair", "set", "fused"] = Field(
        "pair",
        description=(
            "a write is: key, value; SET, key, value, SEP; or one position, whose embedding is the sum of the"
            " key's and the value's"
        ),
    )
    noise: float = Field(
        0.0,
        ge=0,
        description=(
            "noise statements for every write, each placed after a random write. Inert ones add no"
            " noise, since its amount follows from seq_len; they move it from between the questions at"
            " the end to between the writes"
        ),
    )
    noise_kind: Literal["inert", "decoy", "mention"] = Field(
        "inert",
        description=(
            "a noise statement is: two noise tokens, as filler; a write of a key that is never asked for; a"
            " variable's key between SEP, with no value"
        ),
    )
    midstream: int = Field(
        0,
        ge=0,
        description=(
            "questions between writes, beside those at the end; each asks for a variable that was"
            " written before"
        ),
    )
    control: Literal["none", "n_back", "return_all"] = Field(
        "none",
        description=(
            "what is asked: the last value; the n-th last, where there are so many; or every value,"
            " with marks that say how far back (0 is the newest)"
        ),
    )
    n: int = Field(2, ge=2, description="of n_back")
    reset: int = Field(
        0,
        ge=0,
        le=1 << 16,
        description=(
            "RESET statements, each after the same number of writes of other variables. Only keys"
            " written after the last RESET are asked for, and they are new, so a layer that ignores"
            " RESET only loses room"
        ),
    )
    parts: Parts = 1
    shared: Shared = 0
    cluster: Cluster = 4

    @model_validator(mode="after")
    def _possible(self) -> Self:
        most, counts = max(self.overwrites), len(self.overwrites)
        if min(self.overwrites) < 0:
            raise ValueError(f"overwrites are counts from 0 on, not {min(self.overwrites)}")
        if self.variables < counts:
            raise ValueError(
                f"every one of {counts} counts of overwrites needs a variable, so variables must be at least"
                f" {counts}, not {self.variables}"
            )
        if self.values <= most:
            raise ValueError(
                f"{most} overwrites make {most + 1} different values, so values must be at least {most + 1},"
                f" not {self.values}"
            )
        self._refuse_impossible_keys()
        if self.noise_kind == "inert" and self.noise_statements and not self.noises:
            raise ValueError("inert noise is made of noise tokens, so noises must be at least 1 or noise 0")
        if self.midstream and (self.reset or self.control != "none"):
            raise ValueError(
                "midstream questions are of the last value, without resets, so they go with control none and"
                " reset 0 only"
            )
        if len(self.asked) < 2:
            raise ValueError(
                f"control n_back with n = {self.n} asks for at least two variables with {self.n} values, and"
                f" overwrites leave {len(self.asked)}"
            )
        if self.seq_len < self.needed:
            raise ValueError(
                f"{self.writes} writes, {self.noise_statements} noise statements, {self.reset} resets and"
                f" {self.midstream + len(self.asked)} questions take {self.needed} places, so seq_len must be"
                f" at least {self.needed}, not {self.seq_len}"
            )
        return self

    def _refuse_impossible_keys(self) -> None:
        """Raise ValueError, in one sentence, unless there are tokens enough for such keys."""
        if self.parts > 1 and (self.statement == "fused" or self.reset):
            raise ValueError(
                "keys of several parts need a place for each, and no reset between the keys of a cluster, so"
                f" parts = {self.parts} goes with statement pair or set and reset 0 only"
            )
        law = self.key_law
        law.refuse_impossible("variables")
        if self.keys < (needed := law.tokens + (self.decoys > 0)):
            who = f"{law.keys} variables{' and a decoy' if self.decoys else ''}"
            what = "different keys" if self.parts == 1 else f"{law.tokens} different parts"
            raise ValueError(f"{who} have {what}, so keys must be at least {needed}, not {self.keys}")

    @property
    def key_law(self) -> CompositeKeys:
        """The law of the variables' keys."""
        return CompositeKeys(len(self.writes_of), self.parts, self.shared, self.cluster)

    @property
    def writes_of(self) -> tuple[int, ...]:
        """Number of writes of each variable; variables after a reset follow those before it."""
        return tuple(1 + self.overwrites[i % len(self.overwrites)] for i in range(self.variables)) * (
            self.reset + 1
        )

    @property
    def writes(self) -> int:
        """Number of writes of all variables, without decoys."""
        return sum(self.writes_of)

    @property
    def noise_statements(self) -> int:
        """Number of noise statements of any kind."""
        return round(self.noise * self.writes)

    @property
    def decoys(self) -> int:
        """Number of writes of keys that are never asked for."""
        return self.noise_statements if self.noise_kind == "decoy" else 0

    @property
    def asked(self) -> tuple[tuple[int, int], ...]:
        """Questions at the end: which variable, and how many values back."""
        backs = {"none": (0,), "n_back": (self.n - 1,), "return_all": tuple(range(max(self.writes_of)))}[
            self.control
        ]
        variables = range(self.variables * self.reset, len(self.writes_of))
        return tuple(
            (variable, back) for variable in variables for back in backs if back < self.writes_of[variable]
        )

    @property
    def counts(self) -> dict[str, int]:
        """Number of statements of each kind."""
        return {
            "write": self.writes,
            "reset": self.reset,
            self.noise_kind: self.noise_statements,
            "ask": self.midstream + len(self.asked),
        }

    @property
    def width(self) -> int:
        """Ids at each position."""
        return 2 if self.statement == "fused" else 1

    def text(self, kind: str) -> str:
        """Return the words of a statement of that kind, with the words `key_words` for a key."""
        return _TEXTS[self.statement][kind].replace("key", " ".join(self.key_words))

    @property
    def key_words(self) -> tuple[str, ...]:
        """Words that stand for the parts of a key."""
        return tuple(f"part{i}" for i in range(self.parts))

    @property
    def needed(self) -> int:
        """Positions that all statements take."""
        return sum(
            count * statement_length(self.text(kind), width=self.width) for kind, count in self.counts.items()
        )

    @property
    def first_value(self) -> int:
        """First token of values, after the keys."""
        return FIRST_KEY + self.keys

    @property
    def first_noise(self) -> int:
        """First token of noise, after the values."""
        return self.first_value + self.values

    @property
    def reset_mark(self) -> int:
        """Token of a reset, after the noise; used only if there are resets."""
        return self.first_noise + self.noises

    @property
    def marks(self) -> tuple[int, ...]:
        """Marks of questions, by how many values back.

        There is a single mark if that is always the same; in a fused statement it is padding.
        """
        first = self.reset_mark + (self.reset > 0)
        older = max(self.overwrites) if self.control == "return_all" else 0
        return (PAD if self.statement == "fused" else ASK, *range(first, first + older))

    @property
    def vocab_size(self) -> int:
        """Padding and marks, keys, values, noise, RESET and marks of older values if there are any."""
        return self.reset_mark + (self.reset > 0) + len(self.marks) - 1
