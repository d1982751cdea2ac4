"""Kernel families are found by a look into the folder, and their kernels hold in every case they declare."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from linbench import kernels
from linbench.bench.operations import all_operations, kernel_versions
from linbench.bench.profile import kinds_of_work
from linbench.common.scan import subpackage_names
from linbench.experiments.precision import DTYPES, Precision
from linbench.kernels.family import families
from linbench.kernels.operators import INTERPRETED
from linbench.verify.doctor import LIMITS, rows
from linbench.verify.kernel_cases import all_cases
from linbench.verify.kernel_errors import errors_of

DEVICE = "cuda:0" if torch.cuda.is_available() else "cpu"


@pytest.mark.skipif(INTERPRETED, reason="the sizes are a GPU's and a CPU's")
@pytest.mark.parametrize(
    ("kernel", "case"), [(kernel, case) for kernel, cases in all_cases(DEVICE).items() for case in cases]
)
@pytest.mark.parametrize("precision", DTYPES)
def test_kernels_agree_with_float64(kernel: str, case: str, precision: Precision) -> None:
    found = errors_of(all_cases(DEVICE)[kernel][case](DTYPES[precision]))
    limit, gradient_limit = LIMITS[precision]
    assert found.output <= limit
    assert found.gradient is None or found.gradient <= gradient_limit, found.worst


def test_every_folder_is_a_family() -> None:
    assert list(families()) == subpackage_names(kernels)
    for name, family in families().items():
        assert family.cases, name
        assert all(family.cases.values()), name


def test_kernels_of_two_families_have_different_names() -> None:
    for named in ("cases", "operations"):
        names = [name for family in families().values() for name in getattr(family, named)]
        assert len(names) == len(set(names))


DOUBLING = '''
"""Twice a tensor."""

VERSION = 3


def double(x):
    return 2 * x
'''

CASES = """
import torch

from linbench.kernels.doubling import double
from linbench.kernels.family import Family, KernelCase, Operation, no_products, normal, random_inputs


def _case():
    return KernelCase(
        lambda given: (double(given["x"]),), lambda given: (given["x"] + given["x"],), {"x": normal(9)}
    )


def _inputs(shape, dtype, device):
    return random_inputs(shape, dtype, device, sizes=lambda shape: {"x": shape})


FAMILY = Family(
    cases={"double": {"nine numbers": _case}},
    profile_kind="doubling",
    profile_names=("linbench::double",),
    operations={"double": Operation(_inputs, lambda given: double(given["x"]), no_products)},
)
"""


@pytest.fixture
def doubling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel family in a folder of its own."""
    folder = tmp_path / "families" / "doubling"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(DOUBLING, encoding="utf-8")
    (folder / "cases.py").write_text(CASES, encoding="utf-8")
    monkeypatch.setattr(kernels, "__path__", [*kernels.__path__, str(folder.parent)])
    for module in ("doubling", "doubling.cases"):  # which are forgotten afterwards
        monkeypatch.delitem(sys.modules, f"linbench.kernels.{module}", raising=False)


@pytest.mark.usefixtures("doubling")
def test_a_family_is_one_folder(linbench: Callable[..., Any]) -> None:
    assert {(row.kernel, row.case) for row in rows("cpu", ["double"])} == {("double", "nine numbers")}
    ended = linbench("doctor", "double", "--device", "cpu", "--json")
    assert ended.code == 0
    assert [row["kernel"] for row in json.loads(ended.out)["rows"]] == ["double"] * len(DTYPES)
    assert "double" in all_operations()
    assert kernel_versions("double") == {"doubling": 3}
    assert ("doubling", ("linbench::double",)) in kinds_of_work()
