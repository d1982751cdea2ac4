"""Wrapping of any nn.Module from [B, T, D] to [B, T, D] as a mixer.

A module may declare a state, how to carry it, and a controlled form, by methods and attributes of its class
that need no import of linbench (docs/your-layer.md).
"""

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from linbench.common.docstrings import docstring
from linbench.common.errors import PluginError
from linbench.experiments.module_constructor import BATCH_FIRST, PAGE, constructor_of
from linbench.models.base import LayerInfo, Mixer, Out, StateSize
from linbench.models.blocks.convolution import InputConvolution
from linbench.models.blocks.heads import FAMILIES
from linbench.models.blocks.init import zero_init
from linbench.models.blocks.linear import Linear
from linbench.models.blocks.norms import RMSNorm

OUTER = {"outer_conv": 4, "outer_norm": "rms", "outer_map": True}
"""Settings of the controlled form: the same surroundings as of linbench's own recurrences."""


class GuestState(NamedTuple):
    """State of a plain module and of the short convolution before it [B, kernel-1, D], None without one."""

    module: Any
    conv: Tensor | None


def wrap(guest: type[nn.Module]) -> type[Mixer]:
    """Return a mixer that builds `guest` from the model's width, the layer's index and a user's settings.

    Raises PluginError: the constructor takes an object, or `forward` needs more than x.
    """
    constructor = constructor_of(guest)
    start: Any = getattr(guest, "init_state", None)
    carries = callable(start)
    _refuse_forward(guest, most=2 if carries else 1)
    declares_size = callable(getattr(guest, "state_floats", None))
    takes_capacity = carries and "capacity" in inspect.signature(start).parameters

    class Wrapped(Mixer):
        module: Any
        __doc__ = f"{guest.__name__}, an nn.Module. {docstring(guest) or 'It has no docstring.'}"
        is_plain_module = True
        version = 3  # since 3 all widths that a constructor needs are filled, and batch_first is true
        kernel_families = FAMILIES
        streams = carries
        own_names = {"heads": constructor.heads} if constructor.heads else {}
        Settings = constructor.settings()
        controlled = _controlled(guest)

        def __init__(self, settings: Any, layer: LayerInfo) -> None:
            super().__init__(settings, layer)
            self.conv = InputConvolution(layer.d_model, settings.outer_conv)
            try:
                self.module = guest(**constructor.fill(settings, layer))
            except (AttributeError, TypeError) as error:
                refusal = constructor.as_plugin_error(error)
                if refusal is None:
                    raise
                raise refusal from error
            if _has_torchs_forward(guest) and BATCH_FIRST not in settings.model_fields_set:
                self.module.batch_first = True
            self.norm = RMSNorm(layer.d_model) if settings.outer_norm == "rms" else nn.Identity()
            self.map = (
                zero_init(Linear(layer.d_model, layer.d_model)) if settings.outer_map else nn.Identity()
            )

        def forward(self, x: Tensor, state: GuestState | None = None, cross_layer: Any = None) -> Out:
            """Mix x as `Mixer.forward` says; of a tuple that the module returns the first is the output."""
            if state is not None and not carries:
                raise PluginError(f"{guest.__name__} declares no state, so a sequence cannot be continued.")
            u, conv = self.conv(x, state and state.conv)
            result = self.module(u, state and state.module) if carries else self.module(u)
            y, after = (result[0], result[1:]) if isinstance(result, tuple) else (result, ())
            if not isinstance(y, Tensor) or y.shape != x.shape:
                got = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
                raise PluginError(f"{guest.__name__} must return [B, T, D] = {tuple(x.shape)}, not {got}.")
            if carries and len(after) != 1:
                raise PluginError(f"{guest.__name__} has init_state, so its forward must return (y, state).")
            kept = GuestState(after[0], conv) if carries else None
            return Out(self.map(self.norm(y)), kept, cross_layer)

        def init_state(self, batch: int, *, capacity: int) -> GuestState:
            """Return the state before the first token. Raises PluginError: the module declares none."""
            if not carries:
                raise PluginError(f"{guest.__name__} declares no state.")
            own = self.module.init_state(batch, **({"capacity": capacity} if takes_capacity else {}))
            return GuestState(own, self.conv.init_state(batch))

        def state_floats(self, seq_len: int) -> StateSize | None:
            """Return what the module declares and what the convolution carries; None if it declares none."""
            if not declares_size:
                return None
            first, size = (self.module.state_floats(length) for length in (1, seq_len))
            outer = StateSize(convolution=self.conv.state_floats())
            return outer.plus(_state_size(guest.__name__, size, grows=first != size))

        def recurrence_flops(self, seq_len: int) -> float | None:
            """Return None: the module does not declare it."""
            return None

    Wrapped.__name__ = Wrapped.__qualname__ = guest.__name__
    return Wrapped


def _controlled(module: type[nn.Module]) -> dict[str, Any] | None:
    """Return the settings of the controlled form that a class declares: its own, and those of `OUTER`.

    It declares its own settings by `controlled`; True stands for none. None without a declaration.
    """
    own = getattr(module, "controlled", None)
    return {**({} if own is True else own), **OUTER} if own is True or isinstance(own, Mapping) else None


def _has_torchs_forward(module: type[nn.Module]) -> bool:
    """Return whether x reaches one of torch's recurrent networks as it is."""
    return issubclass(module, nn.RNNBase) and module.forward.__module__ == nn.RNNBase.__module__


def _state_size(name: str, declared: Any, *, grows: bool) -> StateSize:
    """Return a declared size: a number of floats, or numbers by the names of `StateSize`.

    A number that grows with the length counts as a cache, any other as recurrent.
    """
    sizes = declared if isinstance(declared, Mapping) else {"cache" if grows else "recurrent": declared}
    if not sizes.keys() <= {*StateSize._fields} or not all(_is_count(each) for each in sizes.values()):
        raise PluginError(
            f"{name}.state_floats must return a number of floats, or a dictionary of such numbers by"
            f" {', '.join(StateSize._fields)}, not {declared!r} ({PAGE})."
        )
    return StateSize(**sizes)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _refuse_forward(module: type[nn.Module], *, most: int) -> None:
    """Raise PluginError if a module's `forward` cannot be called with x alone, or x and a state.

    Args:
        module: the class.
        most: the most arguments that linbench gives.
    """
    try:  # of an instance, so that `self` is not among the parameters, nor missed if there is none
        takes = [*inspect.signature(object.__new__(module).forward).parameters.values()]
    except (TypeError, ValueError):  # what has no signature may be called with x
        return
    positional = [
        p for p in takes if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL}
    ]
    needed = [
        p.name for p in takes if p.default is p.empty and p.kind not in {p.VAR_POSITIONAL, p.VAR_KEYWORD}
    ]
    keywords = [p.name for p in takes if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if positional and len(needed) <= most and not keywords:
        return
    cls = module.__name__
    given = ["x" if i == 0 or name in _READ_X else f"{name}=..." for i, name in enumerate(needed)]
    given += [f"{p.name}=..." for p in takes if p.name in _MASKS and p.name not in needed]
    has = f"takes {', '.join(needed)}" if needed else "takes no x"
    raise PluginError(
        f"{cls}.forward {has}, but linbench calls a layer with x [B, T, D] alone ({PAGE}). Write a"
        " subclass that gives it the rest, such as a causal mask.",
        adapter=(
            f"class Adapted{cls}({cls}):\n"
            f"    def forward(self, x):\n"
            f"        return super().forward({', '.join(given) or '...'})"
        ),
    )


_MASKS = {"mask", "attn_mask", "attention_mask"}
_READ_X = {"q", "k", "v", "query", "key", "value", "queries", "keys", "values"}
"""Names of arguments that are x itself in self-attention."""
