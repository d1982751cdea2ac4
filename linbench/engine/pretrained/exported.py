"""Models that linbench trained, as causal language models of transformers.

Importing this module makes them known to `AutoConfig` and `AutoModelForCausalLM`.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from linbench.common.errors import UserError
from linbench.common.task_io import IO
from linbench.experiments.model_spec import LayerSpec, ModelSpec
from linbench.experiments.precision import Precision, arithmetic
from linbench.experiments.registry import shipped
from linbench.models.backbone import Backbone, BackboneSettings

WEIGHTS = "model.safetensors"
"""The file of weights in an exported folder."""


class LinbenchConfig(PreTrainedConfig):  # type: ignore[misc]
    """The configuration of an exported model.

    Tokens are the task's input ids. Answer ids stand behind them, unless a task has one vocabulary.

    Args:
        spec: identity of the model, as `ModelSpec.identity` returns it.
        seed: seed of its initial values, on which some fixed tensors depend.
        vocab_in: number of input ids.
        vocab_out: number of answer ids.
        vocab_size: number of tokens.
        hidden_size: width of the model.
        precision: the precision in which it was trained.
    """

    model_type = "linbench"

    spec: dict[str, Any] | None = None
    seed: int = 0
    vocab_in: int = 1
    vocab_out: int = 1
    vocab_size: int = 1
    hidden_size: int = 1
    precision: str = "fp32"


class LinbenchForCausalLM(PreTrainedModel):  # type: ignore[misc]
    """An exported model. It computes logits as linbench does, and has neither training nor `generate`."""

    config_class = LinbenchConfig

    def __init__(self, config: LinbenchConfig) -> None:
        """Build the model with the initial weights of its seed."""
        super().__init__(config)
        self.backbone: Backbone = _spec(config.spec or {}).build_for(
            IO(config.vocab_in, config.vocab_out), seed=config.seed
        )
        self.precision: Precision = "fp32"

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path,
        *_: Any,
        config: LinbenchConfig | None = None,
        dtype: torch.dtype | None = None,
        **__: Any,
    ) -> "LinbenchForCausalLM":
        """Return the model in a folder.

        Args:
            folder: a local folder that linbench has exported.
            config: its configuration, where it has been read.
            dtype: bfloat16 computes matrix products in it, as in training; weights are always float32.

        Raises UserError: another version of linbench has exported it.
        """
        model = cls(config or LinbenchConfig.from_pretrained(folder))
        weights = load_file(Path(folder) / WEIGHTS)
        if weights.keys() != stored_tensors(model.backbone).keys():
            raise UserError(f"the weights in {folder} are not those of the model that its config.json names.")
        model.backbone.load_state_dict(weights, strict=False)  # of tied weights one name is stored
        model.precision = "bf16" if dtype == torch.bfloat16 else "fp32"
        model.eval()
        return model

    def forward(
        self,
        input_ids: Tensor,
        past_key_values: Any = None,
        use_cache: bool = False,
        logits_to_keep: int | Tensor = 0,
        capacity: int | None = None,
        **_: Any,
    ) -> Any:
        """Return logits [B, N, vocab_size] in float32 and, with `use_cache`, the states of all layers.

        Args:
            input_ids: tokens that are input ids [B, T].
            past_key_values: states of an earlier call, which the tokens follow.
            use_cache: whether to return states.
            logits_to_keep: positions [N] or [B, N]; or a number of last positions, 0 for all.
            capacity: number of tokens for which new states shall have room; None: those that are given.
        """
        B, T = input_ids.shape
        with arithmetic(self.precision, input_ids.device.type):
            if use_cache and past_key_values is None:
                past_key_values = self.backbone.init_states(B, capacity=capacity or T)
            stream, states = self.backbone.hidden(input_ids, past_key_values)
            if isinstance(logits_to_keep, int):
                logits_to_keep = torch.arange(T, device=input_ids.device)[-logits_to_keep:]
            at = logits_to_keep.expand(B, -1)[:, :, None].expand(-1, -1, stream.shape[-1])
            logits = self.backbone.head(self.backbone.final_norm(stream.gather(1, at))).float()
        if self.config.vocab_size > self.config.vocab_out:  # an input id is no answer
            before = self.config.vocab_size - self.config.vocab_out
            logits = torch.cat([logits.new_full((*logits.shape[:2], before), -torch.inf), logits], dim=2)
        return CausalLMOutputWithPast(logits=logits, past_key_values=states if use_cache else None)


def stored_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a model that are stored, by name; weights that are tied are there once."""
    once = {name for name, _ in [*model.named_parameters(), *model.named_buffers()]}
    return {name: x for name, x in model.state_dict().items() if name in once}


def _spec(identity: dict[str, Any]) -> ModelSpec:
    """Return the specification of a model from its identity.

    Raises UserError: a layer of it is not shipped, or has another version by now.
    """
    layers = []
    for layer in identity["layers"]:
        entry = shipped("model").find(layer["mixer"])
        layers.append(LayerSpec(entry, entry.cls.Settings.model_validate(layer["settings"])))
    settings = BackboneSettings.model_validate(identity["backbone"]["settings"])
    spec = ModelSpec("exported", identity["form"], settings, tuple(layers))
    if _versions(spec.identity()) != _versions(identity):
        raise UserError("the model was exported by another version of linbench; train and export it again.")
    return spec


def _versions(identity: dict[str, Any]) -> list[int]:
    return [identity["backbone"]["version"], *(layer["version"] for layer in identity["layers"])]


AutoConfig.register(LinbenchConfig.model_type, LinbenchConfig, exist_ok=True)
AutoModelForCausalLM.register(LinbenchConfig, LinbenchForCausalLM, exist_ok=True)
