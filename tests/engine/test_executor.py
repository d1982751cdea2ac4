"""The choice of an executor by a user's options, and the scan that finds executors."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import linbench
from linbench.common.errors import UserError
from linbench.engine import executors
from linbench.engine.executors import ExecutorChoice, choose_executor, find_executors
from linbench.engine.executors.base import Executor
from linbench.engine.in_process import IN_PROCESS
from linbench.engine.pool import Pool
from tests.helpers.cells import tiny_settings

ROOT = Path(__file__).parents[2]
DIARY = '''
from contextlib import contextmanager
from pathlib import Path

from linbench.engine.executors.base import Executor, Option


class Diary(Executor):
    """This process, which notes what it trains."""

    name = "diary"
    help = "this process, with a diary"
    options = (Option("diary", "FILE", "File to which cells are noted.", Path, default=Path("default.txt")),)

    @contextmanager
    def open(self, options):
        from linbench.engine.in_process import InProcess

        class Noting(InProcess):
            def __call__(self, jobs, *, tell):
                def noted(job):
                    with options["diary"].open("a") as file:
                        file.writelines(f"{cell.model.label}\\n" for cell in job.cells)
                    return job

                return super().__call__((job and noted(job) for job in jobs), tell=tell)

        yield Noting()
'''
TINY = tiny_settings()


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def opened(name: str = "local", *, device: str = "auto", timeout: float = 1800.0, **options: object) -> Any:
    with choose_executor(name, device=device, timeout=timeout, options=options).open() as executor:
        return executor


def gpus_of(pool: Any) -> list[str]:
    return [environment["CUDA_VISIBLE_DEVICES"] for environment in pool.environments]


@pytest.mark.parametrize("devices", ["all", "2", 2, None])
def test_every_gpu_of_this_host_has_a_worker(two_gpus: None, devices: str | int | None) -> None:
    pool = opened(devices=devices, timeout=60.0)
    assert isinstance(pool, Pool)
    assert gpus_of(pool) == ["0", "1"]
    assert pool.timeout == 60.0


@pytest.mark.parametrize(
    ("devices", "gpus"), [("all", ["0", "1", "0"]), ("1", ["0", "0", "0"]), (None, ["0", "1", "0"])]
)
def test_more_workers_than_gpus_share_them(two_gpus: None, devices: str | None, gpus: list[str]) -> None:
    assert gpus_of(opened(devices=devices, workers=3)) == gpus


def test_a_single_worker_is_a_process_because_a_group_may_hang_or_crash(two_gpus: None) -> None:
    assert gpus_of(opened(devices="1")) == ["0"]
    assert opened(device="cuda:1").environments == ({},)
    assert len(opened(device="cpu", workers=1).environments) == 1


def test_no_worker_is_this_process(two_gpus: None) -> None:
    assert opened(workers=0) is IN_PROCESS
    assert opened(device="cuda:1", workers="0") is IN_PROCESS


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "rays"}, ["'rays'", "'ray'", "local, ray"]),
        ({"worker": 2}, ["'worker'", "'workers'"]),
        ({"gpus": 0.5}, ["--gpus", "--executor ray"]),
        ({"address": "auto"}, ["--address", "--executor ray"]),
        ({"name": "ray", "devices": "all"}, ["--devices", "--executor local"]),
        ({"name": "ray", "workers": 2}, ["--workers", "--executor local"]),
        ({"name": "ray", "device": "cuda:0"}, ["--device cuda", "cuda:0"]),
        ({"name": "ray", "gpus": 1.5}, ["--gpus", "1.5"]),
        ({"name": "ray", "gpus": 0.0}, ["--gpus", "above 0", "not 0"]),
        ({"name": "ray", "gpus": 0.5, "device": "cpu"}, ["--gpus", "CPU"]),
        ({"devices": "some"}, ["--devices", "'some'"]),
        ({"devices": "0"}, ["--devices", "'0'"]),
        ({"devices": "३"}, ["--devices", "'३'"]),
        ({"devices": "3"}, ["3 GPUs", "2 here"]),
        ({"workers": -1}, ["--workers", "'-1'"]),
        ({"devices": "all", "workers": 0}, ["--workers 0", "--devices"]),
        ({"devices": "all", "device": "cpu"}, ["--devices", "--device"]),
        ({"device": "cuda:1", "workers": 2}, ["cuda:1", "--devices 1"]),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    two_gpus: None, options: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(UserError) as raised:
        opened(**options)
    assert [word for word in words if word not in str(raised.value)] == []


def test_devices_need_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(UserError, match="--devices needs a GPU"):
        opened(devices="all")


def test_executors_are_the_files_of_their_folder() -> None:
    folder = Path(executors.__file__).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "base"}
    assert set(find_executors()) == files


@pytest.mark.parametrize("executor", find_executors().values())
def test_help_of_options_is_a_sentence(executor: type[Executor]) -> None:
    assert all(option.help.endswith(".") for option in executor.options)


def test_one_function_runs_cells_for_all_others() -> None:
    """Verbs, claims and the Python interface call `engine.run.carry_out`, and none of what it calls."""
    below = {"run_cells", "run_searched", "choose_executor", "make_pool", "IN_PROCESS"}
    users = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in (ROOT / "linbench").rglob("*.py")
        for name in below & set(re.findall(r"\w+", path.read_text(encoding="utf-8")))
        if path.relative_to(ROOT).parts[1] != "engine"
    }
    assert users == {
        ("linbench/api.py", "choose_executor"),
        ("linbench/cli/executor_options.py", "choose_executor"),
    }


def test_the_default_choice_is_the_one_without_words() -> None:
    assert choose_executor() == ExecutorChoice()


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with an executor of its own, which the package looks into, too."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "diary.py").write_text(DIARY)
    monkeypatch.setattr(executors, "__path__", [*executors.__path__, str(folder)])
    monkeypatch.chdir(tmp_path)
    yield folder
    sys.modules.pop("linbench.engine.executors.diary", None)


def test_an_added_executor_is_found_and_runs_cells(added: Path) -> None:
    assert list(find_executors()) == ["diary", "local", "ray"]
    row = linbench.run("mqar", "deltanet", settings=TINY, device="cpu", executor="diary")
    assert row["status"].tolist() == ["ok"]
    assert Path("default.txt").read_text() == "deltanet\n"
    with pytest.raises(UserError, match="--diary needs --executor diary"):
        linbench.run("mqar", "deltanet", settings=TINY, device="cpu", diary="noted.txt")


def test_a_misspelt_argument_is_told_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown argument of linbench\.run 'seed'; did you mean 'seeds'"):
        linbench.run("mqar", "deltanet", seed=1)


@pytest.mark.slow
def test_an_added_executor_is_in_the_command_line(added: Path) -> None:
    program = (
        f"from linbench.engine import executors; executors.__path__.append({str(added)!r});"
        "from linbench.cli import main; main()"
    )

    def run(*words: str) -> str:
        command = [sys.executable, "-c", program, "run", *words]
        done = subprocess.run(
            command,
            text=True,
            capture_output=True,
            check=True,
            env={"PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        )
        return done.stdout

    shown = run("--help")
    assert "diary|local|ray" in shown
    assert "--diary" in shown
    settings = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]
    words = ["mqar", "--model", "deltanet", "--device", "cpu", "--executor", "diary", "--diary", "noted.txt"]
    assert [result["status"] for result in json.loads(run(*words, *settings, "--json"))] == ["ok"]
    assert Path("noted.txt").read_text() == "deltanet\n"
