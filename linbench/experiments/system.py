"""Named systems: published models of several kinds of layers, each written as a pattern in a YAML file."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import Field

from linbench.common.errors import UserError, unknown
from linbench.common.scan import data_files
from linbench.common.settings import Settings, without
from linbench.common.yaml_files import read_mapping
from linbench.experiments import systems
from linbench.experiments.pattern import Term, parse_pattern, refuse_more_layers
from linbench.experiments.registry import registry

BACKBONE = "backbone"
"""The name in `native` that settings of the model around the layers stand under."""


class System(Settings):
    """A published model as layers of linbench."""

    title: str = Field(description="its name as its authors write it")
    year: int = Field(description="when it was published")
    source: str = Field(description="where: arXiv id, or the code")
    about: str = Field(description="what it is, in a sentence")
    pattern: str = Field(description="one period of its layers, with the settings that define them")
    native: dict[str, dict[str, Any]] = Field(
        {},
        description=(
            "further published settings, which only the native form takes: for each model in the pattern by"
            " its name, and for the model around the layers under `backbone`"
        ),
    )
    differs: str = Field(description="what the published model has that this leaves out or changes")

    @property
    def cited(self) -> str:
        """The source as a text cites it: `arXiv:2510.26692`."""
        return f"arXiv:{self.source}" if self.source[:4].isdigit() else self.source

    @property
    def around(self) -> Mapping[str, Any]:
        """The native settings of the model around the layers."""
        return self.native.get(BACKBONE, {})

    def layers(self) -> list[Term]:
        """Return the layers of one period."""
        return [
            term._replace(native=tuple(self.native.get(term.name, {}).items()))
            for term in parse_pattern(self.pattern)
        ]


@cache
def shipped() -> dict[str, System]:
    """Return the systems that come with linbench by their names."""
    return {
        name: System.parse(read_mapping(path, "system", System.model_fields), where="system")
        for name, path in data_files(systems, ".yaml").items()
    }


def find(name: str) -> System:
    """Return the system of a name. Raises UserError: there is none."""
    if name not in shipped():
        raise unknown("system", name, shipped())
    return shipped()[name]


def parse_layers(text: str) -> list[Term]:
    """Return the layers of one period of a pattern, in which names of systems stand for their layers.

    Settings in brackets behind a system's name are for all its layers that have such a setting.

    Raises UserError: the text is not a pattern, has too many layers, or gives a system a setting that none of
        its layers has.
    """
    layers = [layer for term in parse_pattern(text) for layer in _layers_of(term)]
    refuse_more_layers(len(layers), text)
    return layers


def _layers_of(term: Term) -> list[Term]:
    if term.name not in shipped():
        return [term]
    layers = shipped()[term.name].layers()
    fields = [registry("model").find(layer.name).cls.Settings.model_fields for layer in layers]
    for name, _ in term.settings:
        if not any(name in of_layer for of_layer in fields):
            allowed = sorted({each for of_layer in fields for each in of_layer})
            raise unknown("setting", f"{term.name}[{name}]", (f"{term.name}[{each}]" for each in allowed))
    given = dict(term.settings)
    return [
        layer._replace(settings=_joined(layer, {name: given[name] for name in given if name in of_layer}))
        for layer, of_layer in zip(layers, fields, strict=True)
    ]


def _joined(layer: Term, given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple({**dict(layer.settings), **given}.items())


def systems_in(text: str) -> list[System]:
    """Return the different systems that a pattern names."""
    return [
        shipped()[name]
        for name in dict.fromkeys(term.name for term in parse_pattern(text))
        if name in shipped()
    ]


def native_around(text: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the native settings of the model around the layers of a pattern: those of the systems in it.

    What is `given` is left out.

    Raises UserError: two systems disagree.
    """
    values: dict[str, Any] = {}
    for system in systems_in(text):
        for setting, value in without(system.around, given).items():
            if values.setdefault(setting, value) != value:
                raise UserError(
                    f"'{text}' joins systems that disagree on model.{setting}: {values[setting]} and {value};"
                    f" set model.{setting}."
                )
    return values
