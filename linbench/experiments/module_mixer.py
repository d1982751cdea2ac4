"""Wrapping of any nn.Module from [B, T, D] to [B, T, D] as a mixer, with no declared state or cost."""

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
    """Return a mixer that builds `module` from the model's width, the layer's index and a user's settings.

    The width is given to the first parameter of the constructor among `WIDTH_NAMES`, or else to its first one
    if that has no default. A constructor without either gets none; the index is given if it has a parameter
    for it.
    """
    has_constructor = module.__init__ is not nn.Module.__init__
    # a bound method, so that `self` is not among the parameters whatever it is called
    parameters = (
        dict(inspect.signature(MethodType(module.__init__, module)).parameters) if has_constructor else {}
    )
    names = [name for name, p in parameters.items() if p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY}]
    first_if_required = [name for name in names[:1] if parameters[name].default is inspect.Parameter.empty]
    width = next(iter([*(name for name in WIDTH_NAMES if name in names), *first_if_required]), None)
    index = next((name for name in INDEX_NAMES if name in names), None)
    for name in names:
        if (
            name != index
            and parameters[name].default is inspect.Parameter.empty
            and _is_object(module, parameters[name], width=name == width)
        ):
            raise PluginError(_object_sentence(module, name))

    class Wrapped(Mixer):
        __doc__ = f"{module.__name__}, an nn.Module. {docstring(module) or 'It has no docstring.'}"
        is_plain_module = True
        version = 2  # since 2 what is marked `_no_weight_decay` does not decay
        Settings = _settings(module, [p for name, p in parameters.items() if name not in {width, index}])

        def __init__(self, settings: Any, layer: LayerInfo) -> None:
            super().__init__(settings, layer)
            given = {name: getattr(settings, name) for name in settings.model_fields_set}
            place = {width: layer.d_model, index: layer.index}
            try:
                self.module = module(**{name: value for name, value in place.items() if name}, **given)
            except (AttributeError, TypeError) as error:
                if width in WIDTH_NAMES or not _USED_AS_OBJECT.match(str(error)):
                    raise
                raise PluginError(
                    f"{_object_sentence(module, str(width))} It failed with: {error}."
                ) from error

        def forward(self, x: Tensor, state: Any = None, cross_layer: Any = None) -> Out:
            """Return the module's output, or the first of a tuple of outputs."""
            if state is not None:
                raise PluginError(f"{module.__name__} declares no state, so a sequence cannot be continued.")
            y = self.module(x)
            y = y[0] if isinstance(y, tuple) else y
            if not isinstance(y, Tensor) or y.shape != x.shape:
                got = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
                raise PluginError(f"{module.__name__} must return [B, T, D] = {tuple(x.shape)}, not {got}.")
            return Out(y, None, cross_layer)

        def init_state(self, batch: int, *, capacity: int) -> Any:
            """Raise PluginError: the module declares no state."""
            raise PluginError(f"{module.__name__} declares no state.")

        def state_floats(self, seq_len: int) -> StateSize | None:
            """Return None: the module does not declare it."""
            return None

        def recurrence_flops(self, seq_len: int) -> float | None:
            """Return None: the module does not declare it."""
            return None

    Wrapped.__name__ = Wrapped.__qualname__ = module.__name__
    return Wrapped


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


def _object_sentence(module: type[nn.Module], name: str) -> str:
    cls = module.__name__
    return (
        f"{cls} takes an object as `{name}`, but linbench gives a constructor only numbers and text: the"
        f" model's width as the first of {', '.join(WIDTH_NAMES)} or else as its first parameter, the layer's"
        " number as layer_idx if it takes that, and the settings that you give. Write a subclass that makes"
        f" the object: class Small{cls}({cls}): def __init__(self, d_model): super().__init__(...)."
    )


def _settings(module: type[nn.Module], parameters: list[inspect.Parameter]) -> type[Settings]:
    """Return a settings class with the constructor's parameters."""
    fields: dict[str, Any] = {}
    for p in parameters:
        if p.kind not in {p.VAR_POSITIONAL, p.VAR_KEYWORD}:
            default = ... if p.default is p.empty else p.default
            fields[p.name] = Annotated[Any, BeforeValidator(_reader(module, p).accept)], default
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)

    class Base(Settings):
        model_config = ConfigDict(
            extra="allow" if open_ended else "forbid", frozen=True, arbitrary_types_allowed=True
        )
        __pydantic_extra__: dict[str, Annotated[Any, BeforeValidator(JSON.accept)]]

        @classmethod
        def _read(cls, name: str, value: Any) -> Any:
            return value  # the parameter's reader reads it

    return create_model(f"{module.__name__}Settings", __base__=Base, **fields)


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
