"""Causal language models of transformers: loaded, and asked for the logits of answers."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from linbench.common.errors import UserError, message_of
from linbench.engine.measure import out_of_memory
from linbench.engine.pretrained.folder import ModelFolder, find_folder, require_transformers
from linbench.engine.pretrained.prompt import Prompt
from linbench.engine.pretrained.vocabulary import Vocabulary, choose_tokens
from linbench.experiments.precision import DTYPES, Precision, pick_precision
from linbench.tasks.base import Task

NUMBERS = 1 << 26
"""Upper bound on the logits, and on the numbers of a layer's outputs, that are computed at once."""


@dataclass(frozen=True)
class LanguageModel:
    """A language model in a folder. Weights are read when they are first needed.

    Args:
        folder: where it is.
        config: its configuration, of transformers.
        tokenizer: its tokenizer, of transformers; None if it has none.
        device: where it runs.
        precision: the precision of its weights and of what it computes.
    """

    folder: ModelFolder
    config: Any
    tokenizer: Any | None
    device: str
    precision: Precision

    @property
    def size(self) -> int:
        """Number of tokens in its vocabulary."""
        return int(self.config.get_text_config().vocab_size)

    @cached_property
    def digest(self) -> str:
        """A hash of its weights and configuration."""
        return self.folder.digest()

    @cached_property
    def is_exported(self) -> bool:
        """True if its folder names its own tokens, as those that linbench writes do."""
        return self.folder.mapping() is not None

    @cached_property
    def module(self) -> Any:
        """The model with its weights, which does not train. Raises UserError: it cannot be loaded."""
        from transformers import AutoModelForCausalLM

        path, how = self.folder.path, {"dtype": DTYPES[self.precision], "use_safetensors": True}
        with self._memory(""):
            loaded = _load(self.folder.name, AutoModelForCausalLM, path, config=self.config, **how)
            return loaded.to(self.device).eval()

    @property
    def parameters(self) -> int:
        """Number of its parameters."""
        return sum(parameter.numel() for parameter in self.module.parameters())

    def vocabulary(self, task: Task) -> Vocabulary:
        """Return the tokens for a task: those that the folder names, or those that the rule chooses.

        Raises UserError: the folder names those of another task, or the model has too few tokens.
        """
        mapping = self.folder.mapping()
        if mapping is None:
            return choose_tokens(task, self.size, self.tokenizer)
        of_task = task.io.vocab_in, task.io.vocab_out
        if mapping.task != task.name or (len(mapping.inputs), len(mapping.answers)) != of_task:
            sizes = f"{len(mapping.inputs):,} tokens and {len(mapping.answers):,} answers"
            raise UserError(
                f"{self.folder.name} was trained on {mapping.task} with {sizes}; it cannot be asked"
                f" {task.name} with {of_task[0]:,} and {of_task[1]:,}."
            )
        return Vocabulary(tuple(mapping.inputs), tuple(mapping.answers), separator=None)

    @torch.no_grad()
    def answer_logits(self, prompt: Prompt, answers: Tensor) -> Tensor:
        """Return the logits of the allowed answers at all positions [B, N, answers], in float32.

        Args:
            prompt: the prompts.
            answers: tokens of the allowed answers [answers].

        Raises UserError: a prompt is longer than the model allows, or does not fit into memory.
        """
        length, places = prompt.tokens.shape[1], prompt.positions.shape[1]
        self._refuse_length(length)
        places = places if self._takes_positions else length
        width = int(self.config.get_text_config().hidden_size)
        rows = max(1, min(NUMBERS // (places * self.size), NUMBERS // (length * width)))
        parts = zip(torch.split(prompt.tokens, rows), torch.split(prompt.positions, rows), strict=True)
        with self._memory(f" with a prompt of {length:,} tokens"):
            found = [self._logits(*part)[:, :, answers].float() for part in parts]
        return torch.cat(found)

    @contextmanager
    def _memory(self, doing: str) -> Iterator[None]:
        """Turn a lack of memory into a sentence. Raises UserError: memory is short."""
        try:
            yield
        except Exception as error:
            if not out_of_memory(error):
                raise
            raise UserError(
                f"{self.folder.name} does not fit into the memory of {self.device}{doing}."
            ) from error

    def _logits(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return the logits of all tokens at positions [B, N, size]."""
        if self._takes_positions:
            found: Tensor = self.module(input_ids=tokens, use_cache=False, logits_to_keep=positions).logits
            return found
        found = self.module(input_ids=tokens, use_cache=False).logits
        return found.gather(1, positions[:, :, None].expand(-1, -1, found.shape[2]))

    @cached_property
    def _takes_positions(self) -> bool:
        """True if the model computes logits at some positions alone, as nearly all do."""
        return "logits_to_keep" in inspect.signature(self.module.forward).parameters

    def _refuse_length(self, length: int) -> None:
        most = getattr(self.config.get_text_config(), "max_position_embeddings", None)
        if most is not None and length > most:
            raise UserError(
                f"a prompt has {length:,} tokens, and {self.folder.name} reads at most {most:,}; use fewer"
                " --shots or shorter sequences."
            )


def load_language_model(model: str, *, device: str, dtype: str | None = None) -> LanguageModel:
    """Return the model of a folder or of an id on the hub, without its weights for now.

    Args:
        model: path of a local folder, or id of a model on the hub.
        device: where it will run.
        dtype: name of the precision in which it will run; None: that in which linbench trained it, or else
            the default of the device.

    Raises UserError: there is no such precision, transformers is not installed, there is no such model, or
    it is not one that transformers can run without code of the model's own.
    """
    precision = pick_precision(dtype, device)
    folder = find_folder(model)
    require_transformers()
    from transformers import AutoConfig, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if folder.mapping() is not None:
        from linbench.engine.pretrained import exported  # noqa: F401  # makes the type of its config known
    config = _load(folder.name, AutoConfig, folder.path)
    if folder.mapping() is not None and dtype is None:
        precision = pick_precision(config.precision, device)
    has_tokenizer = any((folder.path / name).is_file() for name in _TOKENIZERS)
    tokenizer = _load(folder.name, AutoTokenizer, folder.path) if has_tokenizer else None
    return LanguageModel(folder, config, tokenizer, device, precision)


_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")


@contextmanager
def torch_left_alone() -> Iterator[None]:
    """Remove what transformers adds to torch's class of modules when it builds a model.

    It is a function that no layer calls. A process whose torch was changed trains nothing.
    """
    before = {*vars(nn.Module)}
    try:
        yield
    finally:
        for name in vars(nn.Module).keys() - before:
            delattr(nn.Module, name)


def _load(name: str, kind: Any, path: Any, **how: Any) -> Any:
    """Load a part of a model without network, and without running code of its own.

    Raises UserError: transformers cannot load it.
    """
    try:
        with torch_left_alone():
            return kind.from_pretrained(path, trust_remote_code=False, local_files_only=True, **how)
    except UserError:
        raise
    except Exception as error:  # transformers raises many kinds, with sentences of its own
        words = " ".join(message_of(error).split(". ")[0].split()).rstrip(".") or type(error).__name__
        raise UserError(f"transformers cannot load {name} as a causal language model: {words}.") from error
