"""Role binding: the same words in different roles."""

from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.tasks.base import Batch, Prediction, Preset, Split, Task, WeightedMean
from linbench.tasks.blocks.error_kinds import first_positions
from linbench.tasks.blocks.explain import join_examples
from linbench.tasks.blocks.statements import statement_length, word_position, write_statement
from linbench.tasks.blocks.timeline import log2_distance, log2_distance_size, place_statements, split_stream
from linbench.tasks.random import Stream, constant

PAD, WHO, WHOM, TO, BY, FIRST_NAME = range(6)
_ASK = "role verb party ."


class RoleBindingSettings(Settings):
    """Settings: who takes part, and how events are told."""

    seq_len: int = Field(
        80,
        ge=4,
        description="length of a sequence; what the statements leave of it is filler, anywhere between them",
    )
    names: int = Field(16, ge=3, description="names, from which those who take part in a verb are drawn")
    verbs: int = Field(8, ge=1, description="verbs, from which an example draws its own")
    rings: int = Field(
        3,
        ge=1,
        description=(
            "number of verbs in an example. The names of each form a ring: the first does it to the"
            " second, and so on, and the last to the first"
        ),
    )
    parties: int = Field(
        4,
        ge=3,
        description=(
            "names in a ring, and so events of its verb; each name is the agent of one and the"
            " patient of another"
        ),
    )
    questions: int = Field(6, ge=1, description="questions, of twice as many as there are events")
    passive: float = Field(
        0.0,
        ge=0,
        le=1,
        description=(
            "share of events told with the patient first; if it is above 0, a word after each verb"
            " says which order it is"
        ),
    )
    noises: int = Field(0, ge=0, description="noise tokens, of which filler is drawn; 0: filler is padding")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.parties > self.names:
            raise ValueError(
                f"the {self.parties} parties of a ring have different names, so names must be at least"
                f" {self.parties}, not {self.names}"
            )
        if self.rings > self.verbs:
            raise ValueError(
                f"{self.rings} rings have different verbs, so verbs must be at least {self.rings}, not"
                f" {self.verbs}"
            )
        if self.questions > 2 * self.events:
            raise ValueError(
                f"{self.events} events leave {2 * self.events} different questions, so questions must be at"
                f" most that many, not {self.questions}"
            )
        if self.seq_len < self.needed:
            raise ValueError(
                f"{self.events} events and {self.questions} questions take {self.needed} tokens, so seq_len"
                f" must be at least {self.needed}, not {self.seq_len}"
            )
        return self

    @property
    def events(self) -> int:
        """Number of events of all verbs."""
        return self.rings * self.parties

    @property
    def event(self) -> str:
        """Words of an event."""
        return "first verb voice second" if self.passive else "first verb second"

    @property
    def needed(self) -> int:
        """Tokens of all events and questions."""
        return self.events * statement_length(self.event) + self.questions * statement_length(_ASK)


class RoleBinding(Task):
    """Who did this to her, and to whom did she do it?

    A sequence tells events, `agent verb patient`, in which the names of a verb form a ring. `WHO verb name`
    or `WHOM verb name` asks for a neighbour in the ring. The same ring in the other direction has the same
    words and the other answers, so a layer that reads bags of words is right half the time. It does not tell
    how much a layer can hold.

    Layout: events stand in any order. Every name of a verb does it to the next, the last to the first, so
    that each is agent and patient of the same verb; both ways round are equally likely. Where events are
    passive, the role must be understood and not the place.

    Chance: 1 / 2, one of the two neighbours.

    linbench's own.
    """

    name = "role_binding"
    skill = "remember"
    Settings = RoleBindingSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "minutes on a laptop: 3 verbs, 4 names with each",
            model={"heads": 2},
            protocol={"lr": 3e-3, "tokens": 2_048_000},
        ),
        "passive": Preset(
            "quick, half of the events told with the patient first",
            task={"passive": 0.5, "seq_len": 96},
            model={"heads": 2},
            protocol={"lr": 3e-3, "tokens": 2_457_600},
        ),
        "base": Preset(
            "8 verbs, 6 names with each of 64, half passive, among noise",
            task={
                "names": 64,
                "verbs": 32,
                "rings": 8,
                "parties": 6,
                "questions": 12,
                "passive": 0.5,
                "noises": 32,
                "seq_len": 384,
            },
            model={"d_model": 128, "heads": 2},
            protocol={"lr": 3e-3, "tokens": 200_000_000, "batch_size": 128},
        ),
    }

    settings: RoleBindingSettings

    @property
    def io(self) -> IO:
        """One vocabulary for both: padding and marks, names, verbs, noise."""
        return IO(self._first_noise + self.settings.noises, self._first_noise + self.settings.noises)

    @property
    def _first_verb(self) -> int:
        return FIRST_NAME + self.settings.names

    @property
    def _first_noise(self) -> int:
        return self._first_verb + self.settings.verbs

    @property
    def answers(self) -> int:
        """One per question."""
        return self.settings.questions

    def chance(self) -> float:
        """Return 1 / 2: one of the name's two neighbours, blind to the role that is asked for."""
        return 0.5

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        role: 0 asks for the agent, 1 for the patient. doublings: base-2 logarithm of the distance in tokens
        from the event to the question, 0 for 1, 1 for 2 and 3, 2 for 4 to 7, and so on. verbs: number of
        verbs of the name. voice: 1 if the event is told with the patient first.
        """
        return {
            "role": 2,
            "doublings": log2_distance_size(self.seq_len),
            "verbs": self.settings.rings + 1,
            "voice": 2,
        }

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; event j of a ring is what its name j does to the next one."""
        s, device = self.settings, index.device
        stream = Stream.of(index, seed=seed, split=split)
        E, T = s.events, s.seq_len
        rings = (
            split_stream(stream.child("names"), s.rings)
            .permutation(s.names)(torch.arange(s.parties, device=device))
            .view(-1, s.rings, s.parties)
        )
        agent = FIRST_NAME + rings.flatten(1)
        patient = FIRST_NAME + rings.roll(-1, dims=2).flatten(1)
        own = self._first_verb + stream.child("verbs").permutation(s.verbs)(
            torch.arange(s.rings, device=device)
        )
        verb = own.repeat_interleave(s.parties, dim=1)
        passive = stream.child("passive").happens(E, share=s.passive)

        lengths = constant((statement_length(s.event),) * E + (statement_length(_ASK),) * s.questions, device)
        starts = place_statements(stream.child("places"), lengths, T - s.needed)
        told, asking = starts[:, :E].gather(1, stream.child("order").shuffle(E)), starts[:, E:]
        chosen = stream.child("questions").permutation(2 * E)(torch.arange(s.questions, device=device))
        event, role = chosen // 2, chosen % 2
        ring, number = event // s.parties * s.parties, event % s.parties
        beside = ring + (number + torch.where(role == 0, 1, s.parties - 1)) % s.parties
        agents, patients = agent.gather(1, event), patient.gather(1, event)
        party, targets = torch.where(role == 0, patients, agents), torch.where(role == 0, agents, patients)
        swapped = torch.where(role == 0, patient.gather(1, beside), agent.gather(1, beside))

        ids = torch.full((len(index), T), PAD, device=device)
        if s.noises:
            ids = self._first_noise + stream.child("filler").integers(T, below=s.noises)
        first, second = torch.where(passive, patient, agent), torch.where(passive, agent, patient)
        write_statement(
            ids,
            s.event,
            told,
            {"first": first, "verb": verb, "voice": torch.where(passive, BY, TO), "second": second},
        )
        write_statement(
            ids, _ASK, asking, {"role": WHO + role, "verb": verb.gather(1, event), "party": party}
        )
        positions = asking + word_position(_ASK, "party")
        takes_part = torch.zeros(len(index), self._first_verb, dtype=torch.int64, device=device).scatter_add(
            1, agent, torch.ones_like(agent)
        )
        slices = {
            "role": role,
            "doublings": log2_distance(positions - told.gather(1, event)),
            "verbs": takes_part.gather(1, party),
            "voice": passive.long().gather(1, event),
        }
        return Batch(ids, positions, targets, slices, {"swapped": swapped})

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return accuracy and kinds of errors, each as a share of all answers.

        swapped: the name with the other role beside the same name. other: another name of the sequence.
        alien: anything else.
        """
        answers = prediction.answers
        swapped = answers == batch.facts["swapped"]
        seen = (
            first_positions(batch.inputs, self._first_noise + self.settings.noises).gather(1, answers)
            < batch.positions
        )
        named = seen & (answers >= FIRST_NAME) & (answers < self._first_verb)
        wrong = (answers != batch.targets) & ~swapped
        found = {"swapped": swapped, "other": wrong & named, "alien": wrong & ~named}
        return super().means(batch, prediction) | {name: WeightedMean(value) for name, value in found.items()}

    def _read(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return where an event begins, its agent, its verb and its patient: all [B, T]."""
        event = self.settings.event
        first, verb, second = (
            inputs.roll(-word_position(event, word), dims=1) for word in ("first", "verb", "second")
        )
        is_name = [(x >= FIRST_NAME) & (x < self._first_verb) for x in (first, second)]
        passive = (
            (inputs.roll(-word_position(event, "voice"), dims=1) == BY)
            if self.settings.passive
            else torch.zeros_like(is_name[0])
        )
        begins = is_name[0] & (verb >= self._first_verb) & (verb < self._first_noise) & is_name[1]
        return begins, torch.where(passive, second, first), verb, torch.where(passive, first, second)

    def solve(self, batch: Batch) -> Tensor:
        """Find the verb's event in which the name has the role that is not asked for."""
        begins, agent, verb, patient = self._read(batch.inputs)
        time = torch.arange(self.seq_len, device=verb.device)
        answers = []
        for at in torch.split(batch.positions, 1, dim=1):
            role, asked, party = (batch.inputs.gather(1, at - back) for back in (2, 1, 0))
            known, wanted = torch.where(role == WHO, patient, agent), torch.where(role == WHO, agent, patient)
            answers.append((wanted * (begins & (time < at) & (verb == asked) & (known == party))).sum(dim=1))
        return torch.stack(answers, dim=1)

    def explain(self, batch: Batch, row: int) -> str:
        """Return the events in the order told, then the questions, as far as there is room."""
        begins, *words = (x[row].tolist() for x in self._read(batch.inputs))
        tokens = batch.inputs[row].tolist()
        told = [
            f"{agent} does {verb} to {patient}"
            for begun, agent, verb, patient in zip(begins, *words, strict=True)
            if begun
        ]
        asked = []
        for at, target in zip(batch.positions[row].tolist(), batch.targets[row].tolist(), strict=True):
            role, verb, party = tokens[at - 2 : at + 1]
            asked.append(
                f"at position {at},"
                f" {f'who does {verb} to {party}' if role == WHO else f'to whom {party} does {verb}'}:"
                f" {target}"
            )
        return (
            f"The events are: {join_examples(told, 24, ', ')}."
            f" The questions are: {join_examples(asked, 12, '; ')}. All else is filler."
        )
