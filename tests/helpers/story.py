"""The facts of `object_locations`, played through one by one."""

from dataclasses import dataclass, field


@dataclass
class Story:
    """Places of people and objects, and what happened to these; keys are tokens."""

    place: dict[int, int] = field(default_factory=dict)
    before: dict[int, int] = field(default_factory=dict)
    holder: dict[int, int] = field(default_factory=dict)
    toucher: dict[int, int] = field(default_factory=dict)
    touched: dict[int, int] = field(default_factory=dict)
    when: dict[int, int] = field(default_factory=dict)
    moves: dict[int, int] = field(default_factory=dict)

    def fit(self, *, carried: bool, before: bool) -> list[int]:
        """Return the objects that may be asked for."""
        return [
            thing
            for thing, person in self.toucher.items()
            if self.place[person] != self.touched[thing]
            and (thing in self.holder) == carried
            and (thing in self.before or not before)
        ]


def told(tokens: list[int], first_object: int, first_place: int) -> Story:
    """Play facts of three tokens: a person moves, an object is at a place, a person takes or drops it."""
    story = Story()

    def bring(thing: int, place: int) -> None:
        if story.place.get(thing, place) != place:
            story.before[thing] = story.place[thing]
        story.place[thing] = place

    for at in range(0, len(tokens), 3):
        verb, first, second = tokens[at : at + 3]
        assert verb in range(4)
        assert second >= first_place if verb < 2 else first_object <= second < first_place
        assert first_object <= first < first_place if verb == 1 else 5 <= first < first_object
        if verb < 2:
            assert story.place.get(first) != second
            bring(first, second)
            for thing, person in story.holder.items():
                if person == first:
                    bring(thing, second)
                    story.moves[thing] += 1
            for thing, person in story.toucher.items():
                if person == first and thing not in story.holder:
                    story.moves[thing] += 1
            continue
        if verb == 2:
            assert second not in story.holder
            story.holder[second] = first
            bring(second, story.place[first])
        else:
            assert story.holder.pop(second) == first
        story.toucher[second], story.touched[second] = first, story.place[first]
        story.when[second], story.moves[second] = at, 0
    return story
