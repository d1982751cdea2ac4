"""Claims of the literature, each with a rule that supports it and a rule that refutes it.

Claims are written in YAML files, one for each section. Every file in this folder is read; no list names them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import linbench.claims
from linbench.claims.cells import CellSource
from linbench.claims.measure import Measure, Source
from linbench.claims.quantities import Formula, conditions
from linbench.claims.rule import Rule
from linbench.claims.schema import TIERS, ClaimText, MeasureSettings, Section
from linbench.claims.timings import TimingSource
from linbench.claims.untrained import TableSource
from linbench.common.errors import UserError, unknown
from linbench.common.hashing import digest
from linbench.common.yaml_files import read_mapping

SOURCES: Mapping[str, type[Source]] = {"cells": CellSource, "untrained": TableSource, "timed": TimingSource}
"""The kinds of sources, by the field of a file that defines them."""


@dataclass(frozen=True)
class Claim:
    """A claim, with its measures and rules read."""

    id: str
    section: str
    text: ClaimText
    measures: Mapping[str, Measure]
    supported: Rule | None
    refuted: Rule | None

    @property
    def number(self) -> int:
        """The number in its id."""
        return int(self.id[1:])

    @property
    def rules(self) -> list[Rule]:
        """The rules that it has: both, or none."""
        return [rule for rule in (self.supported, self.refuted) if rule]

    @property
    def deciding(self) -> list[Measure]:
        """The measures that its rules name."""
        names = dict.fromkeys(name for rule in self.rules for name in rule.names)
        return [self.measures[name] for name in names]

    @property
    def shown(self) -> list[Measure]:
        """All measures: those that decide first, then those that are only shown beside them."""
        return list({measure.name: measure for measure in (*self.deciding, *self.measures.values())}.values())

    @property
    def premises(self) -> list[Formula]:
        """The conditions that both rules contain, such as that a model has learned its training task."""
        supported, refuted = (conditions(rule.formula) for rule in self.rules) if self.rules else ([], [])
        shared = set(map(str, refuted))
        return [part for part in supported if str(part) in shared]

    @property
    def fingerprint(self) -> str:
        """The hash of all that its verdict depends on but results: rules, measures, and where they look."""
        measures = {
            measure.name: {
                **measure.settings.model_dump(mode="json", exclude={"cells"}),
                "source": measure.source.settings(measure.model),
            }
            for measure in self.deciding
        }
        text = self.text
        rules = [" ".join(rule.split()) for rule in (text.premise, text.supported, text.refuted)]
        return digest({"rules": rules, "measures": measures, "needs": list(text.needs.other)})[:12]

    @property
    def uses_device(self) -> bool:
        """True if its verdict belongs to a kind of device."""
        return any(measure.source.uses_device for measure in self.deciding)

    @property
    def tiers(self) -> tuple[str, ...]:
        """All tiers that it spans."""
        first, _, last = self.text.tier.partition("-")
        names = list(TIERS)
        return tuple(names[names.index(first) : names.index(last or first) + 1])

    @property
    def cost(self) -> str:
        """Its tiers in words."""
        words = " or ".join(dict.fromkeys((TIERS[self.tiers[0]], TIERS[self.tiers[-1]])))
        unit = " a model on a GPU" if self.tiers[0] in ("T1", "T2", "T3") else ""
        return f"tier {self.text.tier}: {words}{unit}"


@cache
def claims() -> dict[str, Claim]:
    """Read all claims that come with linbench.

    Returns:
        the claims by their ids, in the order of their numbers.

    Raises:
        UserError: something in a file is wrong.
    """
    by_id: dict[str, Claim] = {}
    for path in _files():
        for claim in read_section(read_mapping(path, "claims", Section.model_fields), where=path.name):
            if claim.id in by_id:
                raise UserError(f"{path.name}: {claim.id} is defined twice.")
            by_id[claim.id] = claim
    return dict(sorted(by_id.items(), key=lambda item: item[1].number))


def _files() -> Iterator[Path]:
    """Yield the files of claims, also those in folders that were added to the package's `__path__`."""
    folders = map(Path, linbench.claims.__path__)
    return chain.from_iterable(sorted(folder.glob("*.yaml")) for folder in folders)


def find(name: str) -> Claim:
    """Return the claim with an id such as C17 or c17. Raises UserError: there is none."""
    if name.upper() not in claims():
        raise unknown("claim", name, claims())
    return claims()[name.upper()]


def read_section(values: Mapping[str, Any], *, where: str) -> list[Claim]:
    """Read the claims of a file.

    Args:
        values: the content of the file.
        where: its name, for error messages.

    Raises:
        UserError: something in it is wrong. One sentence says what is wrong first.
    """
    section = Section.parse(values, where=where)
    kinds = _kinds_of_sources(section, where)
    texts = {name: _read_text(name, given, section) for name, given in section.claims.items()}
    settings = {name: _read_measures(name, text, list(kinds)) for name, text in texts.items()}
    every = [each for own in settings.values() for each in own.values()]
    sources: dict[str, Source] = {}
    for name, field in kinds.items():
        models = list(dict.fromkeys(each.model for each in every if each.cells == name and each.model))
        given = getattr(section, field)[name]
        sources[name] = SOURCES[field].read(name, given, models, f"{where}: {name}")
    return [_claim(name, section.title, text, settings[name], sources) for name, text in texts.items()]


def _kinds_of_sources(section: Section, where: str) -> dict[str, str]:
    """Return the field that defines each source. Raises UserError: two sources have one name."""
    kinds: dict[str, str] = {}
    for field in SOURCES:
        for name in getattr(section, field):
            if name in kinds:
                raise UserError(f"{where}: {name} is defined under both {kinds[name]} and {field}.")
            kinds[name] = field
    return kinds


def _read_text(name: str, given: Mapping[str, Any], section: Section) -> ClaimText:
    if not re.fullmatch("C[1-9][0-9]*", name):
        raise UserError(f"{section.title}: claims are named C1, C2, ..., not {name}.")
    text = ClaimText.parse({"dated": section.dated, **given}, where=name)
    if not bool(text.measures) == bool(text.supported) == bool(text.refuted):
        raise UserError(f"{name}: give measures and both rules, supported and refuted, or none of the three.")
    return text


def _read_measures(claim: str, text: ClaimText, sources: Sequence[str]) -> dict[str, MeasureSettings]:
    """Return the settings of the measures of a claim, each with the name of its source."""
    settings_of_measures: dict[str, MeasureSettings] = {}
    for name, given in text.measures.items():
        where = f"{claim}.{name}"
        own = {"model": given} if isinstance(given, str) else given
        settings = MeasureSettings.parse({**text.measure, **own}, where=where)
        if not settings.cells and len(sources) == 1:
            settings = settings.model_copy(update={"cells": sources[0]})
        if settings.cells not in sources:
            raise unknown(f"cells of {where}", settings.cells, sources)
        if bool(settings.along) != (settings.reaching is not None):
            raise UserError(f"{where}: along needs reaching, and reaching needs along.")
        if settings.along and settings.across:
            raise UserError(f"{where}: along and across cannot be combined.")
        settings_of_measures[name] = settings
    return settings_of_measures


def _claim(
    name: str,
    title: str,
    text: ClaimText,
    settings: Mapping[str, MeasureSettings],
    sources: Mapping[str, Source],
) -> Claim:
    for own, each in settings.items():
        sources[each.cells].check(each, f"{name}.{own}")
    alone = len({each.cells for each in settings.values()}) <= 1
    measures = {own: Measure(name, own, each, sources[each.cells], alone) for own, each in settings.items()}
    premise, supported, refuted = (
        Rule.parse(rule, measures, where=f"{name}.{which}") if rule else None
        for which, rule in (
            ("premise", text.premise),
            ("supported", text.supported),
            ("refuted", text.refuted),
        )
    )
    under = [rule and rule.under(premise) for rule in (supported, refuted)]
    return Claim(name, title, text, measures, *under)
