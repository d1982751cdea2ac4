"""A function applied to many arguments in processes of their own: what raises, crashes or hangs costs one call, not the others."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from threading import Thread
from typing import Any, Generic, NamedTuple, TypeVar

from linbench.common.errors import DeviceLostError, StorageError

_ENDING_SECONDS = 5.0
_WHOLE_DAY = 86400.0


T = TypeVar("T")
Tell = Callable[[Any], None]


class Told(NamedTuple):
    """What a call says before it is over."""

    message: Any


class Outcome(NamedTuple):
    """What a call returned, or in one line why it did not. late: it was ended because it took or was silent for too long. lost: with its process, its GPU
    or its machine, which may be another's doing. storage: what it raised because something cannot be kept, which is no fault of its own."""

    value: Any = None
    failure: str | None = None
    late: bool = False
    lost: bool = False
    storage: StorageError | None = None


def outcomes(
    function: Callable[..., Any],
    arguments: Iterable[Any],
    *,
    workers: int,
    seconds: float = _WHOLE_DAY,
    fresh: bool = False,
    tell: Tell | None = None,
    environments: Sequence[Mapping[str, str]] | None = None,
) -> Iterator[tuple[int, Outcome]]:
    """The place of each argument and its outcome, as they come.

    Args:
        function: importable by name; arguments and results can be pickled. What it prints goes to standard error.
        arguments: each is taken when a worker is free for it. None is no argument: there is none now, but may be after the next outcome.
        workers: processes side by side, each with a process group of its own, which ends with it. After a failure a process is replaced,
            since a GPU that met an illegal address answers no later call of the same process. 0 calls in this process, one after another.
        seconds: a call that takes longer, or with `tell` is silent for longer, fails.
        fresh: a new process for every call.
        tell: hears what calls say: `function` is given a second argument, to say it with.
        environments: variables for each worker, set before it computes.

    Raises StorageError: a call did.
    """
    if workers == 0:
        for place, argument in enumerate(each for each in arguments if each is not None):
            yield place, _kept(_call(function, argument, tell))
        return
    waiting = Waiting(arguments)
    running: list[_Worker] = []
    idle: list[_Worker] = []
    free = [*(environments or [{}] * workers)][::-1]
    try:
        while True:
            while len(running) < workers and (following := waiting.next()):
                running.append(_least_busy(idle, running) if idle else _Worker(function, free.pop(), talks=tell is not None))
                running[-1].begin(*following, seconds)
            while idle and waiting.over:
                idle.pop().end()
            if not running:
                return
            for worker in _ready(running):
                heard = worker.heard(seconds)
                if isinstance(heard, Told):
                    assert tell is not None
                    tell(heard.message)
                    continue
                yield worker.place, _kept(heard)
                running.remove(worker)
                if heard.failure is None and not fresh:
                    idle.append(worker)
                else:
                    free.append(worker.environment)
                    worker.end()
    finally:
        for worker in running + idle:
            worker.end(at_once=True)


class Waiting(Generic[T]):
    """What is to be done, with its place. over: nothing will come any more."""

    def __init__(self, these: Iterable[T | None]) -> None:
        self._these, self._place, self.over = iter(these), -1, False

    def next(self) -> tuple[int, T] | None:
        """None: nothing is there, for now or for good."""
        if self.over:
            return None
        try:
            following = next(self._these)
        except StopIteration:
            self.over = True
            return None
        if following is None:
            return None
        self._place += 1
        return self._place, following


def one_line(error: BaseException) -> str:
    """An exception as a row of a table shows it."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def _call(function: Callable[..., Any], argument: Any, tell: Tell | None) -> Outcome:
    try:
        return Outcome(function(argument) if tell is None else function(argument, tell))
    except StorageError as error:
        return Outcome(storage=error)
    except DeviceLostError as error:
        return Outcome(failure=str(error), lost=True)
    except Exception as error:  # whatever it is, it belongs to this call alone
        return Outcome(failure=one_line(error))


def _kept(outcome: Outcome) -> Outcome:
    """The outcome, unless there was no keeping it."""
    if outcome.storage is not None:
        raise outcome.storage
    return outcome


class _Worker:
    """A process, and the call that it is at."""

    def __init__(self, function: Callable[..., Any], environment: Mapping[str, str], *, talks: bool) -> None:
        context = multiprocessing.get_context("spawn")  # a forked process could not use the GPU
        self.connection, far = context.Pipe()
        self.environment, self.talks = environment, talks
        self.process = context.Process(target=_serve, args=(far, function, dict(environment), talks), daemon=True)
        self.process.start()
        far.close()
        self.place, self.deadline = -1, 0.0

    def begin(self, place: int, argument: Any, seconds: float) -> None:
        self.place, self.deadline = place, time.monotonic() + seconds
        with suppress(OSError):  # of one that died meanwhile the end is heard next
            self.connection.send(argument)

    def heard(self, seconds: float) -> Told | Outcome:
        """What a call says, or its outcome if it is over, one way or another."""
        try:
            if not self.connection.poll():
                self._kill()
                return Outcome(failure=f"said nothing for {seconds:.0f} s and was ended" if self.talks else f"took longer than {seconds:.0f} s", late=True)
            heard: Told | Outcome = self.connection.recv()
        except (EOFError, OSError):  # it died: between two messages, before it had read its argument, or in the middle of a message
            self.process.join()
            code = self.process.exitcode or 0
            return Outcome(failure=f"its process died with {signal.Signals(-code).name if code < 0 else f'exit code {code}'}")
        self.deadline = time.monotonic() + seconds
        return heard

    def end(self, *, at_once: bool = False) -> None:
        self.connection.close()  # the process ends when it finds nobody at the other end
        self.process.join(0 if at_once else _ENDING_SECONDS)
        self._kill()

    def _kill(self) -> None:
        """The process and all that it started."""
        with suppress(ProcessLookupError, PermissionError):
            if self.process.pid is not None and os.getpgid(self.process.pid) == self.process.pid:
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()


def _least_busy(idle: list[_Worker], running: list[_Worker]) -> _Worker:
    """Takes from the idle one that shares its environment, and so its GPU, with the fewest that run."""
    shared = [sum(other.environment == worker.environment for other in running) for worker in idle]
    return idle.pop(shared.index(min(shared)))


def _ready(running: list[_Worker]) -> list[_Worker]:
    """Those that have something to say, or are overdue; waits for the first."""
    left = max(0.0, min(worker.deadline for worker in running) - time.monotonic())
    heard = wait([worker.connection for worker in running], left)
    return [worker for worker in running if worker.connection in heard or worker.deadline <= time.monotonic()]


def _serve(connection: Connection, function: Callable[..., Any], environment: dict[str, str], talks: bool) -> None:
    os.setpgrp()
    Thread(target=_end_with_parent, daemon=True).start()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt ends the process that started this one, and with it this one
    os.dup2(2, 1)
    tell: Tell | None = (lambda message: connection.send(Told(message))) if talks else None
    while True:
        try:
            argument = connection.recv()
        except EOFError:
            return
        connection.send(_call(function, argument, tell))


def _end_with_parent() -> None:
    """Whoever started this process may be killed while a call hangs."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.killpg(0, signal.SIGKILL)
