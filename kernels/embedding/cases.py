"""Cases of the embedding, three of whose four positions share a row."""

from functools import partial

import torch
from torch import Tensor

from linbench.kernels.embedding import embedding
from linbench.kernels.family import Family, Inputs, KernelCase, normal


def _case(positions: int, vocabulary: int, width: int) -> KernelCase:
    index = torch.randint(vocabulary, (positions,), generator=torch.Generator().manual_seed(0))
    index[torch.arange(positions) % 4 != 0] = 0
    return KernelCase(_kernel, _reference, {"weight": normal(vocabulary, width), "index": index})


def _kernel(given: Inputs) -> tuple[Tensor, ...]:
    return (embedding(given["weight"], given["index"]),)


def _reference(given: Inputs) -> tuple[Tensor, ...]:
    return (given["weight"][given["index"]],)


FAMILY = Family(
    cases={
        "embedding": {
            "small vocabulary": partial(_case, 300, 5, 64),
            "large vocabulary": partial(_case, 5000, 3001, 96),
        }
    },
    profile_kind="embedding",
    profile_names=("embedding", "Embedding"),
)
