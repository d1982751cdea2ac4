"""Constructors of plain modules: the parameters that linbench fills, and those that are settings."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MethodType, SimpleNamespace
from typing import Annotated, Any, Literal, get_overloads, get_type_hints

from pydantic import BeforeValidator, ConfigDict, Field, create_model
from torch import nn

from linbench.common.errors import PluginError
from linbench.common.scalars import JSON, NOTHING, Reader, any_of, reader_like, reader_of
from linbench.common.settings import Settings, TypeWords
from linbench.models.base import LayerInfo
from linbench.models.blocks.heads import HeadSettings

WIDTH_NAMES = ("d_model", "hidden_size", "dim", "width", "embed_dim", "n_embd", "input_size")
INDEX_NAMES = ("layer_idx", "layer_index")
HEAD_NAMES = ("num_heads", "n_heads", "n_head", "nhead", "num_attention_heads", "heads")
BATCH_FIRST = "batch_first"
PAGE = "docs/your-layer.md"

_MANY = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}

Parameters = Mapping[str, inspect.Parameter]


class OuterSettings(Settings):
    """Settings of what linbench can put around a plain module. By default there is nothing."""

    outer_conv: int = Field(
        0,
        ge=0,
        le=4,
        description="kernel of a short convolution on the module's input, with SiLU; 0 is none",
    )
    outer_norm: Literal["none", "rms"] = Field("none", description="norm of the module's output")
    outer_map: bool = Field(
        False, description="whether a linear map follows the module and its norm; it starts at zero"
    )


@dataclass(frozen=True)
class Constructor:
    """The constructor of a plain module.

    Attributes:
        module: the class.
        parameters: what it takes, by name, without `self`.
        widths: parameters that take the model's width; the first is no setting, the others may be set.
        index: the parameter that takes the layer's index, if there is one.
        heads: the parameter that takes the number of heads, if there is one.
    """

    module: type[nn.Module]
    parameters: Parameters
    widths: tuple[str, ...]
    index: str | None
    heads: str | None

    def fill(self, settings: Settings, layer: LayerInfo) -> dict[str, Any]:
        """Return the arguments for a layer: its width and index, `batch_first`, and the given settings."""
        filled: dict[str, Any] = dict.fromkeys(self.widths, layer.d_model)
        if self.index:
            filled[self.index] = layer.index
        if BATCH_FIRST in self.parameters:
            filled[BATCH_FIRST] = True
        if self.heads and self.parameters[self.heads].default is inspect.Parameter.empty:
            filled[self.heads] = HEADS
        given = settings.model_fields_set - OuterSettings.model_fields.keys()
        return filled | {name: getattr(settings, name) for name in given}

    def settings(self) -> type[Settings]:
        """Return a settings class with the other parameters, and those of `OuterSettings`."""
        fields: dict[str, Any] = {}
        for name, p in self.parameters.items():
            if name in (*self.widths[:1], self.index) or p.kind in _MANY:
                continue
            default = ... if p.default is p.empty else p.default
            # what `fill` gives without a setting; `linbench show model` prints it
            if name in self.widths:
                default = "d_model"
            elif name == BATCH_FIRST:
                default = True
            elif name == self.heads and default is ...:
                default = HEADS
            reader = _reader(self.module, p)
            fields[name] = Annotated[Any, BeforeValidator(reader.accept), TypeWords(reader.words)], default
        open_ended = any(p.kind is p.VAR_KEYWORD for p in self.parameters.values())

        class Base(OuterSettings):
            model_config = ConfigDict(
                extra="allow" if open_ended else "forbid", frozen=True, arbitrary_types_allowed=True
            )
            __pydantic_extra__: dict[str, Annotated[Any, BeforeValidator(JSON.accept)]]

            @classmethod
            def _read(cls, name: str, value: Any) -> Any:
                return value  # the parameter's reader reads it

        return create_model(f"{self.module.__name__}Settings", __base__=Base, **fields)

    def as_plugin_error(self, error: Exception) -> PluginError | None:
        """Return the sentence for a constructor that failed since it takes an object as its first parameter.

        None if it failed for another reason.
        """
        width = self.widths[0] if self.widths else ""
        if width in WIDTH_NAMES or not _USED_AS_OBJECT.match(str(error)):
            return None
        refused = _takes_object(self, width)
        return PluginError(f"{refused} It failed with: {error}.", adapter=refused.adapter)


HEADS: int = HeadSettings.model_fields["heads"].default
"""The number of heads of a module that must be given one, which linbench's own layers have by default."""


def constructor_of(module: type[nn.Module]) -> Constructor:
    """Return the constructor of a module.

    The model's width is given to all parameters of `WIDTH_NAMES` that have no default, or else to the first
    of these names that it has, or else to its first parameter if that has no default.

    Raises PluginError: it takes an object, such as a configuration, or uses a name of `OuterSettings`.
    """
    parameters = _parameters(module)
    names = [name for name, p in parameters.items() if p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY}]
    required = [name for name in names if parameters[name].default is inspect.Parameter.empty]
    known = [name for name in WIDTH_NAMES if name in names]
    widths = (
        [name for name in known if name in required] or known[:1] or [n for n in names[:1] if n in required]
    )
    index, heads = (next((n for n in each if n in names), None) for each in (INDEX_NAMES, HEAD_NAMES))
    found = Constructor(module, parameters, tuple(widths), index, heads)
    for name in required:
        if name != index and _is_object(module, parameters[name], width=name in widths):
            raise _takes_object(found, name)
    for name in names:
        if name in OuterSettings.model_fields:
            raise PluginError(
                f"{module.__name__} takes `{name}`, which is linbench's name for what it puts around a module"
                f" ({PAGE}); rename that parameter in a subclass."
            )
    return found


def _parameters(module: type[nn.Module]) -> Parameters:
    """Return the parameters of a constructor; of one that declares overloads those of the first.

    torch's GRU takes only `*args` and `**kwargs` by its own signature.
    """
    if module.__init__ is nn.Module.__init__:
        return {}
    declared: list[Callable[..., Any]] = list(get_overloads(module.__init__))
    # a bound method, so that `self` is not among the parameters whatever it is called
    return dict(inspect.signature(MethodType([*declared, module.__init__][0], module)).parameters)


_USED_AS_OBJECT = re.compile("'int' object (has no attribute|is not subscriptable|is not iterable)")
_OBJECT_NAMES = {"config", "cfg", "conf", "configuration", "hparams", "args"}


def _is_object(module: type[nn.Module], parameter: inspect.Parameter, *, width: bool) -> bool:
    """Return whether a required parameter takes an object, such as a configuration, that no text can give."""
    annotation = _resolve(module, parameter.annotation)
    if not isinstance(annotation, type) or annotation is parameter.empty:
        return width and parameter.name in _OBJECT_NAMES
    if width:
        return not issubclass(int, annotation) and annotation is not float
    return annotation.__module__ != "builtins" and reader_of(annotation) is JSON


def _takes_object(constructor: Constructor, name: str) -> PluginError:
    """Return the error for a parameter that takes an object, with a subclass that makes one."""
    module, parameters, index = constructor.module, constructor.parameters, constructor.index
    cls, annotation = module.__name__, _resolve(module, parameters[name].annotation)
    is_class = isinstance(annotation, type) and annotation is not inspect.Parameter.empty
    required = [each for each, p in parameters.items() if p.default is p.empty and p.kind not in _MANY]
    values = dict.fromkeys(required, "...") | dict.fromkeys(constructor.widths, "d_model")
    values |= {index: index} if index else {}
    values[name] = f"{annotation.__name__ if is_class else 'Config'}(hidden_size=d_model)"
    arguments = ", ".join(f"{each}={value}" for each, value in values.items())
    return PluginError(
        f"{cls} takes an object as `{name}`, but linbench gives a constructor only numbers and text: the"
        f" model's width, the layer's index and your settings ({PAGE}). Write a subclass that makes it.",
        adapter=(
            f"class Adapted{cls}({cls}):\n"
            f"    def __init__(self, d_model{f', {index}' if index else ''}):\n"
            f"        super().__init__({arguments})"
        ),
    )


def _reader(module: type[nn.Module], parameter: inspect.Parameter) -> Reader:
    """Return the reader of a parameter by its annotation, and by a default of another type or without one."""
    default = parameter.default
    if parameter.annotation is parameter.empty:
        return JSON if default is parameter.empty else reader_like(default)
    reader = reader_of(_resolve(module, parameter.annotation))
    if default is parameter.empty or reader.takes(default):
        return reader
    return any_of([reader, NOTHING if default is None else reader_like(default)])


def _resolve(module: type[nn.Module], annotation: Any) -> Any:
    """Return the type that an annotation names as text; the annotation itself if there is no such type."""
    if not isinstance(annotation, str):
        return annotation
    names = getattr(inspect.unwrap(module.__init__), "__globals__", {})
    try:
        return get_type_hints(SimpleNamespace(__annotations__={"it": annotation}), names)["it"]
    except Exception:  # a name that only a type checker imports, or of another version of Python
        return annotation
