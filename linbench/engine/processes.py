"""Python processes that talk over a connection, and that end with all that they have started."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import spawn
from multiprocessing.connection import Pipe
from pathlib import Path
from threading import Thread
from uuid import uuid4

from linbench.common.streams import make_valid

_MARK = "LINBENCH_WORKER"
"""An environment variable that marks a process and all that it starts.

The mark stays whatever group or session they move to.
"""

_BEGIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[3]); from linbench.engine.serving import serve;"
    " serve(*map(int, sys.argv[1:3]))"
)
CUT_OFF = 83
"""The exit code of a worker that has lost its connection."""

_ROUNDS = 20
"""Times that marked processes are looked for and killed, because they may start others meanwhile."""

_PR_SET_PDEATHSIG = 1  # of prctl(2): the signal that is sent when the parent dies
_FIRST_TO_BE_KILLED = "1000"  # the highest oom_score_adj of proc(5)


class Child:
    """A process in a session of its own that runs `linbench.engine.serving.serve`.

    It prints to standard error alone, and reads nothing from standard input.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Start the process.

        It does not import the main program of this process, which may be a script that would begin again.

        Args:
            environment: variables besides those of this process.
        """
        make_valid()
        self.connection, far = Pipe()
        alive, self._alive = os.pipe()
        self._mark = uuid4().hex
        path = json.dumps([str(Path(each).absolute()) for each in sys.path])
        try:
            self._process = subprocess.Popen(
                [spawn.get_executable(), "-c", _BEGIN, str(far.fileno()), str(alive), path],
                pass_fds=(far.fileno(), alive),
                stdin=subprocess.DEVNULL,
                stdout=2,
                env={**os.environ, **environment, _MARK: self._mark},
                start_new_session=True,
            )
        finally:
            far.close()
            os.close(alive)

    @property
    def pids(self) -> list[int]:
        """The ids of this process and of all that it has started, as far as they still run."""
        own = {self._process.pid} if self.code is None else set()
        return sorted(own | set(_processes_with_mark(self._mark)))

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        return self._process.poll()

    def ended(self, seconds: float) -> bool:
        """Wait for the process to end by itself, and return whether it did within these seconds."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self.code is not None

    def kill(self) -> None:
        """End the process, all of its group, and what it started elsewhere."""
        if self.code is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
            self._process.wait()
        kill_marked(self._mark)
        if self._alive >= 0:
            os.close(self._alive)
            self._alive = -1


def end_with_parent(alive: int) -> None:
    """End this process and all that it has started when its parent is gone, even if a call hangs.

    Args:
        alive: descriptor of a pipe that is at its end when the parent is gone.
    """
    Thread(target=_watch, args=(alive, os.environ.get(_MARK, "")), daemon=True).start()
    # for a call that never lets another thread run; Linux alone has it
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def be_killed_first() -> None:
    """Let the system, when memory is full, end this process rather than the run that waits for it."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_BE_KILLED, encoding="ascii")


def children() -> list[int]:
    """Return the ids of running processes that this one has started; none if the system does not tell."""
    ids: list[int] = []
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            ids += map(int, path.read_text(encoding="ascii").split())
    return ids


def _watch(alive: int, mark: str) -> None:
    # a layer may have closed the descriptor: then the signal alone tells of the parent's death
    with suppress(OSError):
        os.read(alive, 1)
        kill_marked(mark)
        os.killpg(0, signal.SIGKILL)


def _processes_with_mark(mark: str) -> list[int]:
    """Return the ids of other processes that have the mark."""
    variable = f"{_MARK}={mark}".encode()
    ids = []
    for path in Path("/proc").glob("[0-9]*/environ") if mark else ():
        with suppress(OSError):  # another user's, or it has just ended
            if variable in path.read_bytes().split(b"\0"):
                ids.append(int(path.parent.name))
    return [pid for pid in ids if pid != os.getpid()]


def mark_children() -> str:
    """Mark all that this process starts from now on, and return the mark."""
    mark = os.environ[_MARK] = uuid4().hex
    return mark


def kill_marked(mark: str) -> None:
    """Kill all other processes that have the mark, until there are none."""
    for _ in range(_ROUNDS):
        ids = _processes_with_mark(mark)
        if not ids:
            return
        for pid in ids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
