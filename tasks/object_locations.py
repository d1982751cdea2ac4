"""Objects that people carry from place to place."""

from functools import cache
from typing import Any, ClassVar, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Prediction, Preset, Split, Task, WeightedMean
from linbench.tasks.blocks.explain import join_examples
from linbench.tasks.blocks.timeline import log2_distance, log2_distance_size, split_stream
from linbench.tasks.random import Stream

MOVE, AT, TAKE, DROP, WHERE, FIRST_PERSON = range(6)
"""Tokens; people, objects and places follow."""

WORLDS = 16
"""Worlds that are drawn for an example, which is the first of them that is fit to ask about.

Fewer than one example in 300 of a preset has none.
"""

SEQUENCES = 1 << 13
"""Worlds that chance is averaged over, as far as they are fit to ask about; it has no closed form."""


class ObjectLocationsSettings(Settings):
    """Settings: how many people, objects, places and events, and what is asked."""

    people: int = Field(2, ge=1, description="people, who each are at a place")
    objects: int = Field(4, ge=3, description="objects, which are at a place or carried by a person")
    places: int = Field(8, ge=2, description="places")
    events: int = Field(12, ge=12, description="events; in half of them a person moves to another place")
    before: bool = Field(
        False, description="whether the place before the present one is due, and not the present one"
    )

    @property
    def facts(self) -> int:
        """Return the number of facts: where everything is at first, and the events."""
        return self.people + self.objects + self.events

    @property
    def first_object(self) -> int:
        """Return the first token of objects, after the people."""
        return FIRST_PERSON + self.people

    @property
    def first_place(self) -> int:
        """Return the first token of places, after the objects."""
        return self.first_object + self.objects

    @property
    def vocab_size(self) -> int:
        """Return the number of all tokens."""
        return self.first_place + self.places

    @model_validator(mode="after")
    def _enough_happens(self) -> Self:
        if self.events < (least := max(12, 4 * self.people)):
            raise ValueError(
                f"too little happens in {self.events} events to ask about; with {self.people} people use"
                f" events = {least} or more"
            )
        return self


class World(NamedTuple):
    """Facts in their order, and where they leave each object.

    facts: verb and its two words [B, F, 3]. place: where the object is, carried or not [B, O]. before: its
    last other place, -1 if there was none. carried: whether it is. toucher: where the person is who took or
    dropped it last. touched: where that was. moves: how often that person has moved since. when: which event
    that was, -1 if there was none.
    """

    facts: Tensor
    place: Tensor
    before: Tensor
    carried: Tensor
    toucher: Tensor
    touched: Tensor
    moves: Tensor
    when: Tensor

    def fit(self, *, before: bool) -> tuple[Tensor, Tensor]:
        """Return which carried objects can be asked for, and which dropped ones [B, O].

        The person who touched it last is now at another place than then, so that neither place is always
        right.
        """
        asked = (self.when >= 0) & (self.toucher != self.touched)
        if before:
            asked = asked & (self.before >= 0)
        return asked & self.carried, asked & ~self.carried


class ObjectLocations(Task):
    """After people have moved and carried things about, where is this object?

    People move from place to place, and take and drop objects. An object moves with whoever carries it. A
    layer must keep who carries what, and follow that to a place that is told of the person alone. It does not
    tell of long texts, since there is no word that does not matter.

    Layout: each fact is three tokens, `MOVE person place`, `AT object place`, `TAKE person object` or `DROP
    person object`. At first all places are told. Then half of the events are moves of a person to another
    place; in the others an object is dropped by whoever carries it, or taken by any person, wherever they
    are. At the end two objects are asked for, `WHERE object`: one carried and one dropped, whose last carrier
    has since moved away. So the place where that person is now and the place where they last touched the
    object are each right in half of cases.

    Chance: the likeliest place of the objects that may be asked for.

    After qa1 to qa3 of BABILong (Kuratov et al. 2024, arXiv:2406.10149), on single tokens. The balance is
    linbench's: without it the two places alone would be right in .81 and .65 of cases in the quick preset.
    """

    name = "object_locations"
    skill = "reason"
    Settings = ObjectLocationsSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "2 people, 4 objects, 8 places and 12 events in 58 tokens; needs more than these tokens to be"
            " learned",
            protocol={"lr": 3e-3, "tokens": 2_048_000},
        ),
        "before": Preset(
            "the sizes of quick; the place before the present one is due, as in qa3",
            task={"before": True},
            protocol={"lr": 3e-3, "tokens": 8_192_000},
        ),
        "base": Preset(
            "4 people, 4 objects, 16 places and 24 events in 100 tokens",
            task={"people": 4, "places": 16, "events": 24},
            protocol={"lr": 3e-3, "tokens": 65_536_000},
        ),
        "long": Preset(
            "4 people, 4 objects, 16 places and 76 events in 256 tokens",
            task={"people": 4, "places": 16, "events": 76},
            protocol={"lr": 3e-3, "tokens": 262_144_000},
        ),
    }

    settings: ObjectLocationsSettings

    @property
    def io(self) -> IO:
        """One vocabulary for both."""
        return IO(self.settings.vocab_size, self.settings.vocab_size)

    @property
    def seq_len(self) -> int:
        """All facts and two questions."""
        return 3 * self.settings.facts + 2 * self.answers

    @property
    def answers(self) -> int:
        """A carried object and a dropped one."""
        return 2

    def chance(self) -> float:
        """Return the accuracy of the likeliest place of all objects that may be asked for.

        It is an average over the worlds that are fit to ask about among 8,192.
        """
        return _chance(self.settings)

    def longer(self, times: int) -> dict[str, Any]:
        """Return settings with more events."""
        return {"events": times * self.settings.events}

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        carried: 1 if the object is. moves: of the person who touched it last, since then. doublings: base-2
        logarithm of the distance in tokens from there to the question, 0 for 1, 1 for 2 and 3, and so on.
        """
        s = self.settings
        return {"carried": 2, "moves": s.events + 1, "doublings": log2_distance_size(self.seq_len)}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples; nothing is due in those few of which no world is fit to ask about."""
        s, device, B = self.settings, index.device, len(index)
        stream, world = _fit_world(s, Stream.of(index, seed=seed, split=split))
        pair = []
        for kind, fit in zip(("carried", "dropped"), world.fit(before=s.before), strict=True):
            drawn = stream.child(kind).bits(s.objects).masked_fill(~fit, -1)
            pair.append(drawn.argmax(dim=1))
        swapped = stream.child("swapped").happens(1, share=1 / 2)
        asked = torch.stack(pair, dim=1)
        asked = torch.where(swapped, asked.flip(1), asked)
        fit = torch.stack([x.any(dim=1) for x in world.fit(before=s.before)], dim=1).all(dim=1, keepdim=True)

        here, before, carried, toucher, touched, moves, when = (x.gather(1, asked) for x in world[1:])
        questions = torch.stack([torch.full_like(asked, WHERE), s.first_object + asked], dim=2)
        positions = 3 * s.facts + torch.arange(1, 2 * self.answers, 2, device=device).expand(B, -1)
        other = here if s.before else torch.where(carried, touched, toucher)
        distance = positions - 3 * (s.people + s.objects + when) - 2
        return Batch(
            torch.cat([world.facts.flatten(1), questions.flatten(1)], dim=1),
            positions,
            torch.where(fit, s.first_place + (before if s.before else here), IGNORE),
            {"carried": carried.long(), "moves": moves, "doublings": log2_distance(distance)},
            {"other": s.first_place + other},
        )

    def means(self, batch: Batch, prediction: Prediction) -> dict[str, WeightedMean]:
        """Return also "confused" and "elsewhere", shares of all answers, which are places but wrong.

        confused: where a carried object was taken, or where the last carrier of a dropped one is now; with
        `before`, where the object is now. elsewhere: another place.
        """
        answers = prediction.answers
        confused = answers == batch.facts["other"]
        elsewhere = (answers != batch.targets) & ~confused & (answers >= self.settings.first_place)
        kinds = {"confused": confused & (answers != batch.targets), "elsewhere": elsewhere}
        return super().means(batch, prediction) | {name: WeightedMean(x) for name, x in kinds.items()}

    def solve(self, batch: Batch) -> Tensor:
        """Play all facts through; a person, and an object that lies somewhere, carries itself."""
        s, last = self.settings, 3 * self.settings.facts
        things = torch.arange(FIRST_PERSON, s.first_place, device=batch.inputs.device)
        carrier = things.expand(len(batch.inputs), -1)
        place = before = torch.zeros_like(carrier)
        for verb, first, second in zip(
            *(torch.split(batch.inputs[:, word:last:3], 1, dim=1) for word in range(3)), strict=True
        ):
            moved = ((verb == MOVE) | (verb == AT)) & (carrier == first)
            now = torch.where(moved, second, place)
            taken, left = ((verb == which) & (things == second) for which in (TAKE, DROP))
            of_person = (place * (things == first)).sum(dim=1, keepdim=True)
            now = torch.where(taken, of_person, now)
            carrier = torch.where(taken, first, torch.where(left, things, carrier))
            before, place = torch.where(now == place, before, place), now
        asked = batch.inputs.gather(1, batch.positions) - FIRST_PERSON
        return (before if s.before else place).gather(1, asked)

    def explain(self, batch: Batch, row: int) -> str:
        """Return the facts in their order, then the questions with their answers."""
        s, tokens = self.settings, batch.inputs[row].tolist()
        facts = [self._say(*tokens[at : at + 3]) for at in range(0, 3 * s.facts, 3)]
        asked = [
            f"at position {at} for {self._name(tokens[at])}: "
            + ("nothing is due" if target == IGNORE else f"{self._name(target)} ({target})")
            for at, target in zip(batch.positions[row].tolist(), batch.targets[row].tolist(), strict=True)
        ]
        due = "the place before the present one" if s.before else "the place"
        return f"{join_examples(facts, 40)}. Asked is {due}, {join_examples(asked)}."

    def _name(self, token: int) -> str:
        s = self.settings
        if token < s.first_object:
            return f"person {token - FIRST_PERSON + 1}"
        if token < s.first_place:
            return f"object {token - s.first_object + 1}"
        return f"place {token - s.first_place + 1}"

    def _say(self, verb: int, first: int, second: int) -> str:
        does = {MOVE: "moves to", AT: "is at", TAKE: "takes", DROP: "drops"}[verb]
        return f"{self._name(first)} {does} {self._name(second)}"


def _fit_world(s: ObjectLocationsSettings, stream: Stream) -> tuple[Stream, World]:
    """Return the first of an example's worlds that is fit to ask about, and its stream."""
    tried = split_stream(stream.child("worlds"), WORLDS)
    fit = torch.stack([x.any(dim=1) for x in draw_world(s, tried).fit(before=s.before)]).all(dim=0)
    first = fit.view(-1, WORLDS).long().argmax(dim=1, keepdim=True)
    chosen = Stream(tried.key.view(-1, WORLDS).gather(1, first)[:, 0])
    return chosen, draw_world(s, chosen)


def draw_world(s: ObjectLocationsSettings, stream: Stream) -> World:
    """Draw what happens, event by event. A person, and an object that lies somewhere, carries itself."""
    B, E, device = len(stream.key), s.events, stream.key.device
    things = torch.arange(s.people + s.objects, device=device).expand(B, -1)
    place = stream.child("first places").integers(s.people + s.objects, below=s.places)
    said = torch.where(things < s.people, MOVE, AT)
    told = torch.stack([said, FIRST_PERSON + things, s.first_place + place], dim=2)
    order = stream.child("told").shuffle(s.people + s.objects)
    facts = list(told.gather(1, order[:, :, None].expand(-1, -1, 3)).unbind(dim=1))

    moving = stream.child("moving").happens(E, share=1 / 2)
    people = stream.child("people").integers(E, below=s.people)
    steps = 1 + stream.child("steps").integers(E, below=s.places - 1)
    objects = s.people + stream.child("objects").integers(E, below=s.objects)
    carrier, before = things, torch.full_like(place, -1)
    toucher, touched, when, count = (torch.full_like(place, fill) for fill in (0, 0, -1, 0))
    moved = torch.zeros_like(place)  # how often each person did
    for event in range(E):
        move, person, step, thing = (x[:, event : event + 1] for x in (moving, people, steps, objects))
        held = carrier.gather(1, thing)
        dropped = held != thing
        person = torch.where(move | ~dropped, person, held)
        there = place.gather(1, person)
        there = torch.where(move, (there + step) % s.places, there)
        its = ~move & (things == thing)
        now = torch.where(its | (move & (carrier == person)), there, place)
        before, place = torch.where(now == place, before, place), now
        carrier = torch.where(its, torch.where(dropped, thing, person), carrier)
        moved = moved + (move & (things == person))
        toucher, touched = torch.where(its, person, toucher), torch.where(its, there, touched)
        when = torch.where(its, event, when)
        count = torch.where(its, moved.gather(1, person), count)
        verb = torch.where(move, MOVE, torch.where(dropped, DROP, TAKE))
        second = torch.where(move, s.first_place + there, FIRST_PERSON + thing)
        facts.append(torch.cat([verb, FIRST_PERSON + person, second], dim=1))

    toucher_place, moves = place.gather(1, toucher), moved.gather(1, toucher) - count
    own = slice(s.people, None)
    return World(
        torch.stack(facts, dim=1),
        *(x[:, own] for x in (place, before, carrier != things, toucher_place, touched, moves, when)),
    )


@cache
def _chance(s: ObjectLocationsSettings) -> float:
    stream = Stream.of(torch.arange(SEQUENCES), seed=0, split="chance")
    world = draw_world(s, stream)
    kinds = world.fit(before=s.before)
    share = torch.stack([fit / (2 * fit.sum(dim=1, keepdim=True).clamp(min=1)) for fit in kinds]).sum(dim=0)
    answers = world.before.clamp(min=0) if s.before else world.place
    likely = torch.zeros(SEQUENCES, s.places).scatter_add(1, answers, share).amax(dim=1)
    due = torch.stack([fit.any(dim=1) for fit in kinds]).all(dim=0)
    return float(likely[due].double().mean())
