"""Which options go together."""

from typing import Any

import pytest

from linbench.common.errors import UserError
from linbench.engine import executors as what
from linbench.engine.executors import executor
from linbench.engine.executors.base import HERE
from linbench.engine.executors.pool import Pool


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what.torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def chosen(*name: str, **options: Any) -> Any:
    with executor(*name, **options) as found:
        return found


@pytest.mark.parametrize("devices", ["all", "2", None])
def test_every_gpu_of_this_host_has_a_worker(two_gpus: None, devices: str | None) -> None:
    found = chosen(devices=devices, silence=60.0)
    assert isinstance(found, Pool)
    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in found.environments] == ["0", "1"]
    assert found.silence == 60.0


@pytest.mark.parametrize(
    ("devices", "seen"), [("all", ["0", "1", "0"]), ("1", ["0", "0", "0"]), (None, ["0", "1", "0"])]
)
def test_more_workers_than_gpus_share_them(two_gpus: None, devices: str | None, seen: list[str]) -> None:
    found = chosen(devices=devices, workers=3)
    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in found.environments] == seen


def test_one_worker_alone_is_a_process_too(two_gpus: None) -> None:
    """It may hang or die."""
    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in chosen(devices="1").environments] == ["0"]
    assert chosen(device="cuda:1").environments == ({},)
    assert len(chosen(device="cpu", workers=1).environments) == 1


def test_no_worker_is_this_process(two_gpus: None) -> None:
    assert chosen(workers=0) is HERE
    assert chosen(device="cuda:1", workers=0) is HERE


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"name": "rays"}, "unknown executor 'rays'; did you mean 'ray'? Allowed: local, ray."),
        ({"gpus": 0.5}, "--gpus is of a cluster: it goes with --executor ray."),
        ({"address": "auto"}, "--address is of a cluster: it goes with --executor ray."),
        (
            {"name": "ray", "devices": "all"},
            "--devices is of this host; a cluster runs as many groups as it has room for.",
        ),
        (
            {"name": "ray", "workers": 2},
            "--workers is of this host; a cluster runs as many groups as it has room for.",
        ),
        (
            {"name": "ray", "device": "cuda:0"},
            "--device cuda:0 is of this host; a cluster chooses GPUs itself: --device cuda.",
        ),
        (
            {"name": "ray", "gpus": 1.5},
            "--gpus takes what a group needs of one GPU, above 0 and at most 1, not 1.5.",
        ),
        (
            {"name": "ray", "gpus": 0.0},
            "--gpus takes what a group needs of one GPU, above 0 and at most 1, not 0.",
        ),
        (
            {"name": "ray", "gpus": 0.5, "device": "cpu"},
            "--gpus is for cells on a GPU, and these are on the CPU",
        ),
        ({"devices": "some"}, "--devices takes all, or a number of GPUs, not 'some'."),
        ({"devices": "0"}, "--devices takes all, or a number of GPUs, not '0'."),
        ({"devices": "3"}, "3 GPUs are asked for; there are 2 here."),
        (
            {"devices": "all", "workers": 0},
            "--workers 0 is this process, with one device; leave --devices out.",
        ),
        ({"devices": "all", "device": "cpu"}, "--devices is so many GPUs; leave --device out."),
        (
            {"device": "cuda:1", "workers": 2},
            "--device cuda:1 is for one worker; --devices 1 is one GPU for as many as you like.",
        ),
    ],
)
def test_bad_input_is_one_sentence(two_gpus: None, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as raised:
        chosen(**options)
    assert str(raised.value).startswith(sentence)


def test_without_a_gpu_there_are_no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what.torch.cuda, "device_count", lambda: 0)
    with pytest.raises(UserError, match=r"there is none here; leave it out, and each CPU core has a worker"):
        chosen(devices="all")
