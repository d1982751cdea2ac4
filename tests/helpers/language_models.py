"""Language models for tests: an untrained one of a few architectures, and one that repeats what it read."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from linbench.engine.pretrained.ask import PretrainedCase, Question
from linbench.engine.pretrained.folder import ModelFolder
from linbench.engine.pretrained.language_model import LanguageModel, torch_left_alone
from linbench.engine.pretrained.prompt import Answers
from linbench.experiments.plan_tasks import make_task

VOCABULARY = 320


def question(
    task: str, *, shots: int = 0, answers: Answers = "hidden", examples: int = 64, **settings: Any
) -> Question:
    """Return a task as it is asked, with some of its settings."""
    made, entry, _ = make_task(
        task, preset=None, settings={f"task.{name}": value for name, value in settings.items()}
    )
    return Question(made, entry, None, shots, answers, 0, examples)


class Repeating(nn.Module):
    """A model that names the token which followed the last place of the current token, before this one."""

    def forward(
        self, input_ids: Tensor, logits_to_keep: Tensor | None = None, use_cache: bool = False
    ) -> Any:
        place = torch.arange(input_ids.shape[1], device=input_ids.device)
        same = (input_ids[:, :, None] == input_ids[:, None, :]) & (place[:, None] > place)
        last = (same * (1 + place)).amax(dim=2)  # the place after it; 0 if there is none
        named = input_ids.gather(1, last)
        logits = nn.functional.one_hot(named, VOCABULARY).float()
        if logits_to_keep is not None:
            logits = logits.gather(1, logits_to_keep[:, :, None].expand(-1, -1, VOCABULARY))
        return SimpleNamespace(logits=logits)


class RepeatingEverywhere(Repeating):
    """The same for a model that computes logits at all places."""

    def forward(self, input_ids: Tensor, use_cache: bool = False) -> Any:
        return super().forward(input_ids)


def repeating_model(tmp_path: Path, *, longest: int | None = None, device: str = "cpu") -> LanguageModel:
    """Return a language model without files that repeats; `longest`: the tokens that it reads at most."""
    sizes = SimpleNamespace(vocab_size=VOCABULARY, hidden_size=8, max_position_embeddings=longest)
    config = SimpleNamespace(get_text_config=lambda: sizes)
    model = LanguageModel(ModelFolder(tmp_path, "repeating"), config, None, device, "fp32")
    model.__dict__["module"] = Repeating()
    return model


def ask_repeating(tmp_path: Path, asked: Question) -> float:
    """Return the accuracy of the model that repeats."""
    return PretrainedCase(repeating_model(tmp_path), asked).measure().metrics["accuracy"]


def _llama() -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=512,
    )


def _mamba2() -> Any:
    from transformers import Mamba2Config

    return Mamba2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        state_size=16,
        num_hidden_layers=2,
        num_heads=4,
        head_dim=16,
        expand=2,
        n_groups=1,
        chunk_size=32,
    )


def _qwen3_next() -> Any:
    from transformers import Qwen3NextConfig

    return Qwen3NextConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        linear_num_key_heads=2,
        linear_num_value_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        layer_types=["linear_attention", "full_attention"],
        num_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
    )


UNTRAINED: dict[str, Callable[[], Any]] = {"llama": _llama, "mamba2": _mamba2, "qwen3_next": _qwen3_next}
"""Configurations of small models of two layers, by architecture."""


def save_untrained(architecture: str, folder: Path) -> Path:
    """Write a model of random weights into a folder, and return the folder."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    with torch.random.fork_rng(devices=[]), torch_left_alone():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(UNTRAINED[architecture]()).save_pretrained(folder)
    return folder
