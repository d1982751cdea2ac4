"""Devices by the names that users give them, and kinds of devices of other hosts."""

import pytest

from linbench.common.errors import UserError
from linbench.experiments.device import Elsewhere, device_class, pick_device

KINDS = ("cpu", "NVIDIA H100 80GB HBM3", "NVIDIA H200")


@pytest.mark.parametrize("name", ["h200", "H200", "NVIDIA H200", "nvidia h200"])
def test_a_part_of_its_name_finds_a_kind_of_another_host(name: str) -> None:
    found = pick_device(name, kinds=lambda: KINDS)
    assert (found, device_class(found), pick_device(found)) == ("NVIDIA H200",) * 3
    assert isinstance(found, Elsewhere)


def test_what_this_host_has_comes_first() -> None:
    def kinds() -> list[str]:
        raise AssertionError("not asked for")

    assert [pick_device(name, kinds=kinds) for name in ("cpu", "auto")] == ["cpu", pick_device("auto")]


@pytest.mark.parametrize(
    ("name", "kinds", "words"),
    [
        ("nvidia", KINDS, "--device nvidia could be NVIDIA H100 80GB HBM3 or NVIDIA H200; name one of them."),
        ("h300", KINDS, r"unknown device 'h300'.* Allowed: NVIDIA H100 80GB HBM3, NVIDIA H200, auto, cpu"),
        ("h200", (), "unknown device 'h200'"),
        ("cp", KINDS, r"unknown device 'cp'; did you mean 'cpu'\?"),
    ],
)
def test_a_name_that_fits_none_or_several_is_refused(name: str, kinds: tuple[str, ...], words: str) -> None:
    with pytest.raises(UserError, match=words):
        pick_device(name, kinds=lambda: kinds)
