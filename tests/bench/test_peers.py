"""Peers are modules in a folder: one that is added is found, timed and shown, with no edit elsewhere."""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor

from linbench.bench import peers
from linbench.bench import run as measured
from linbench.bench.operations import all_operations
from linbench.bench.peer import UnsupportedByPeerError
from linbench.bench.peers.fla import path_of_fla
from linbench.bench.timing import DevicePeaks
from linbench.kernels.attention.reflections import path_attention
from linbench.kernels.family import Shape
from linbench.kernels.matrix_state import Delta, matrix_state
from tests.helpers.processes import imported

SLOW_SUM = """
from torch import nn

from linbench.bench.layer_side import Side
from linbench.bench.peer import Peer, UnsupportedByPeerError


class Sum(nn.Module):
    def forward(self, x):
        return x.cumsum(dim=1)


def layer(case, compiling):
    if case.mixer != "linear_attention":
        raise UnsupportedByPeerError("sums only")
    module = Sum()
    return Side(module, module, module, lambda batch, context: module)


def operations(compiling):
    return {"l2_norm": lambda x: x["x"] / x["x"].norm(dim=-1, keepdim=True)}


PEER = Peer(
    name="slow-sum",
    package="torch",
    distribution="torch",
    runs_on=("cpu", "cuda"),
    note="slow-sum: a sum, for tests.",
    layer=layer,
    operations=operations,
)
"""


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A peer in a folder of its own, which the scan looks into as well."""
    (tmp_path / "slow_sum.py").write_text(SLOW_SUM)
    monkeypatch.setattr(peers, "__path__", [*peers.__path__, str(tmp_path)])
    importlib.invalidate_caches()
    monkeypatch.setattr(measured, "ceilings", lambda device: DevicePeaks(1e10, 1e11))
    yield
    sys.modules.pop("linbench.bench.peers.slow_sum", None)
    vars(peers).pop("slow_sum", None)


def test_the_peers_that_linbench_ships() -> None:
    found = peers.find_peers()
    assert {name: peer.measures for name, peer in found.items()} == {
        "fla": ["operations", "layers"],
        "flash_qla": ["operations"],
        "numpy": ["draws"],
        "sdpa": ["operations", "layers"],
        "transformers": ["operations", "layers"],
        "zoology-style": ["training steps"],
    }
    assert all(peer.note.startswith(("fla ", f"{name}: ")) for name, peer in found.items())


@pytest.mark.usefixtures("added")
def test_a_peer_from_another_folder_is_timed_beside_layers(linbench: Callable[..., Any]) -> None:
    shape = ["--d-model", "16", "--lengths", "8", "--tokens", "16", "--device", "cpu", "--repeat", "1"]
    words = ["bench", "length", *shape, "--peer", "slow-sum", "--models", "linear_attention,deltanet"]
    ended = linbench(*words, "--json")
    assert ended.code == 0, ended.err
    trained, _, memory, refused, *_ = json.loads(ended.out)
    assert trained["bench"]["peer"]["name"] == "slow-sum"
    assert trained["sides"]["slow-sum"]["as_called"]["median"] > 0
    assert trained["of_peer"].split(": ") == ["slow-sum", "a sum, for tests."]
    assert set(memory["sides"]) == {"linbench"}
    assert refused["sides"]["slow-sum"] == {"reason": "sums only"}
    assert "linear_attention, slow-sum" in linbench(*words).out


@pytest.mark.usefixtures("added")
def test_a_peer_from_another_folder_is_timed_beside_kernels(
    linbench: Callable[..., Any], snapshot: SnapshotAssertion
) -> None:
    shape = ["--shapes", "B2xT9xH2xD8", "--device", "cpu", "--repeat", "1"]
    ended = linbench("bench", "ops", *shape, "--ops", "l2_norm", "--peer", "slow-sum", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)[0]["sides"]["slow-sum"]["both"]["as_called"]["median"] > 0
    other = linbench("bench", "data", "--tasks", "mqar/quick", "--device", "cpu", "--peer", "slow-sum")
    assert other.code == 2, "it draws nothing"
    assert other.err.strip() == snapshot


@pytest.mark.slow
def test_finding_peers_imports_none_of_their_packages() -> None:
    program = "from linbench.bench.peers import find_peers; assert len(find_peers()) >= 5"
    assert imported(program, "fla", "flash_qla", "tilelang", "transformers") == set()


@pytest.mark.parametrize("name", ["attention", "fox"])
def test_attention_of_torch_computes_the_operation(name: str) -> None:
    operation = all_operations()[name]
    given = operation.inputs(Shape(2, 9, 2, 8), torch.float32, "cpu")
    found = peers.operation_calls("sdpa")[name](given)
    torch.testing.assert_close(found, operation.call(given), rtol=1e-5, atol=1e-6)


def test_gates_of_path_are_given_to_fla_as_it_scales_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """It multiplies their sums with what multiplies the scores, so they must have come the other way."""

    def scaling(q: Tensor, k: Tensor, v: Tensor, w: Tensor, beta: Tensor, g: Tensor) -> tuple[Tensor, None]:
        sums = g.cumsum(dim=1) * q.shape[-1] ** -0.5
        return path_attention(q, k, v, w, beta, kept=(sums, sums)), None

    for package in ("fla", "fla.ops"):
        monkeypatch.setitem(sys.modules, package, ModuleType(package))
    module = ModuleType("fla.ops.path_attn")
    module.parallel_path_attn = scaling
    monkeypatch.setitem(sys.modules, "fla.ops.path_attn", module)
    operation = all_operations()["path_fox"]
    given = operation.inputs(Shape(2, 9, 2, 8), torch.float32, "cpu")
    torch.testing.assert_close(path_of_fla(given), operation.call(given), rtol=1e-5, atol=1e-6)


@pytest.fixture
def flash_qla(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with the function of FlashQLA and its defaults, which computes what linbench does."""

    def chunk_gated_delta_rule(
        q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float | None = None
    ) -> tuple[Tensor, None]:
        assert (g.dtype, scale) == (torch.float32, None)
        return matrix_state(q, k, v, log_decay=g, update=Delta(beta))[0], None

    module = ModuleType("flash_qla")
    module.chunk_gated_delta_rule = chunk_gated_delta_rule
    monkeypatch.setitem(sys.modules, "flash_qla", module)


@pytest.mark.usefixtures("flash_qla")
def test_flash_qla_computes_the_gated_delta_rule() -> None:
    calls = peers.operation_calls("flash_qla")
    assert list(calls) == ["gated_deltanet"]
    operation = all_operations()["gated_deltanet"]
    given = operation.inputs(Shape(2, 9, 2, 128), torch.bfloat16, "cpu")
    torch.testing.assert_close(calls["gated_deltanet"](given), operation.call(given))


@pytest.mark.usefixtures("flash_qla")
@pytest.mark.parametrize(
    ("width", "dtype", "reason"),
    [(64, torch.bfloat16, "has heads of 128 only"), (128, torch.float32, "computes in bf16 and fp16 only")],
)
def test_flash_qla_says_what_it_has_no_kernel_for(width: int, dtype: torch.dtype, reason: str) -> None:
    given = all_operations()["gated_deltanet"].inputs(Shape(2, 9, 2, width), dtype, "cpu")
    with pytest.raises(UnsupportedByPeerError, match=reason):
        peers.operation_calls("flash_qla")["gated_deltanet"](given)


def test_a_peer_that_is_not_installed_is_a_reason(snapshot: SnapshotAssertion) -> None:
    assert peers.unavailable_reason("flash_qla", "cuda", "operations") == snapshot
