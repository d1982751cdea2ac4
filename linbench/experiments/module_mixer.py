"""Any nn.Module from [B, T, D] to [B, T, D] as a mixer: what it does not declare is undeclared, not
refused."""

import inspect
import re
from types import MethodType, SimpleNamespace
from typing import Annotated, Any, get_type_hints

from pydantic import BeforeValidator, ConfigDict, create_model
from torch import Tensor, nn

from linbench.common.docstrings import docstring
from linbench.common.errors import PluginError
from linbench.common.scalars import JSON, NOTHING, Reader, any_of, reader_like, reader_of
from linbench.common.settings import Settings
from linbench.models.base import LayerInfo, Mixer, Out, StateSize

WIDTH_NAMES = ("d_model", "hidden_size", "dim", "width", "embed_dim", "n_embd")
INDEX_NAMES = ("layer_idx", "layer_index")


def wrap(module: type[nn.Module]) -> type[Mixer]:
    """A mixer that builds `module` with the model's width (and layer index, if it takes one) and the settings
    a user gives.

    The width goes to the first parameter of its constructor among `WIDTH_NAMES`, or else to its first if that
    has no default; a module that takes none is built without.
    """
    own = module.__init__ is not nn.Module.__init__
    # without the module itself, whatever it is called
    parameters = dict(inspect.signature(MethodType(module.__init__, module)).parameters) if own else {}
    named = [name for name, p in parameters.items() if p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY}]
    unnamed = [name for name in named[:1] if parameters[name].default is inspect.Parameter.empty]
    width = next(iter([*(name for name in WIDTH_NAMES if name in named), *unnamed]), None)
    index = next((name for name in INDEX_NAMES if name in named), None)
    for name in named:
        if (
            name != index
            and parameters[name].default is inspect.Parameter.empty
            and _is_object(module, parameters[name], width=name == width)
        ):
            raise PluginError(_no_object(module, name))

    class Wrapped(Mixer):
        __doc__ = f"{module.__name__}, an nn.Module. {docstring(module) or 'It has no docstring.'}"
        opaque = True
        version = 2  # since 2 what is marked `_no_weight_decay` does not decay
        Settings = _settings(module, [p for name, p in parameters.items() if name not in {width, index}])

        def __init__(self, settings: Any, layer: LayerInfo) -> None:
            super().__init__(settings, layer)
            given = {name: getattr(settings, name) for name in settings.model_fields_set}
            place = {width: layer.d_model, index: layer.index}
            try:
                self.module = module(**{name: value for name, value in place.items() if name}, **given)
            except (AttributeError, TypeError) as error:
                if width in WIDTH_NAMES or not _AS_AN_OBJECT.match(str(error)):
                    raise
                raise PluginError(f"{_no_object(module, str(width))} It failed with: {error}.") from error

        def forward(self, x: Tensor, state: Any = None, handed: Any = None) -> Out:
            """The module's output, or the first of a tuple of them."""
            if state is not None:
                raise PluginError(f"{module.__name__} declares no state, so it cannot be carried on.")
            y = self.module(x)
            y = y[0] if isinstance(y, tuple) else y
            if not isinstance(y, Tensor) or y.shape != x.shape:
                got = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
                raise PluginError(f"{module.__name__} must return [B, T, D] = {tuple(x.shape)}, not {got}.")
            return Out(y, None, handed)

        def init_state(self, batch: int, *, capacity: int) -> Any:
            """Undeclared."""
            raise PluginError(f"{module.__name__} declares no state.")

        def state_floats(self, seq_len: int) -> StateSize | None:
            """Undeclared."""
            return None

        def recurrence_flops(self, seq_len: int) -> float | None:
            """Undeclared."""
            return None

    Wrapped.__name__ = Wrapped.__qualname__ = module.__name__
    return Wrapped


_AS_AN_OBJECT = re.compile("'int' object (has no attribute|is not subscriptable|is not iterable)")
_OBJECT_NAMES = {"config", "cfg", "conf", "configuration", "hparams", "args"}


def _is_object(module: type[nn.Module], parameter: inspect.Parameter, *, width: bool) -> bool:
    """Whether a parameter that must be given takes an object, such as a configuration, which neither the
    width nor a setting is."""
    annotation = _resolved(module, parameter.annotation)
    if not isinstance(annotation, type) or annotation is parameter.empty:
        return width and parameter.name in _OBJECT_NAMES
    return (
        not issubclass(int, annotation) and annotation is not float
        if width
        else annotation.__module__ != "builtins" and reader_of(annotation) is JSON
    )


def _no_object(module: type[nn.Module], name: str) -> str:
    """What to do about it."""
    own = module.__name__
    return (
        f"{own} takes an object as `{name}`, and linbench gives a constructor numbers and text alone: the"
        f" model's width as the first of {', '.join(WIDTH_NAMES)} or else as its first parameter, the layer's"
        " number as layer_idx if it takes that, and the settings that you give; write a subclass that makes"
        f" the object: class Small{own}({own}): def __init__(self, d_model): super().__init__(...)."
    )


def _settings(module: type[nn.Module], parameters: list[inspect.Parameter]) -> type[Settings]:
    """Settings with the constructor's parameters."""
    fields: dict[str, Any] = {
        p.name: (
            Annotated[Any, BeforeValidator(_reader(module, p).accept)],
            ... if p.default is p.empty else p.default,
        )
        for p in parameters
        if p.kind not in {p.VAR_POSITIONAL, p.VAR_KEYWORD}
    }
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)

    class Base(Settings):
        model_config = ConfigDict(
            extra="allow" if open_ended else "forbid", frozen=True, arbitrary_types_allowed=True
        )
        __pydantic_extra__: dict[str, Annotated[Any, BeforeValidator(JSON.accept)]]

        @classmethod
        def _read(cls, name: str, value: Any) -> Any:
            return value  # the reader of its parameter does

    return create_model(f"{module.__name__}Settings", __base__=Base, **fields)


def _reader(module: type[nn.Module], parameter: inspect.Parameter) -> Reader:
    """How what is given for a parameter is read: by its annotation, by its default where that is of another
    type or nothing is annotated."""
    default = parameter.default
    if parameter.annotation is parameter.empty:
        return JSON if default is parameter.empty else reader_like(default)
    reader = reader_of(_resolved(module, parameter.annotation))
    if default is parameter.empty or reader.takes(default):
        return reader
    return any_of([reader, NOTHING if default is None else reader_like(default)])


def _resolved(module: type[nn.Module], annotation: Any) -> Any:
    """An annotation that is written as text, as with `from __future__ import annotations`, as what it names;
    as it is where that is not there."""
    if not isinstance(annotation, str):
        return annotation
    names = getattr(inspect.unwrap(module.__init__), "__globals__", {})
    try:
        return get_type_hints(SimpleNamespace(__annotations__={"it": annotation}), names)["it"]
    except Exception:  # a name that only a type checker imports, or that is of another Python
        return annotation
