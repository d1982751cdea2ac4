"""A function applied to many arguments in processes of their own: what raises, crashes or hangs costs one call, not the others."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

_ENDING_SECONDS = 5.0
_WHOLE_DAY = 86400.0


class Outcome(NamedTuple):
    """What a call returned, or in one line why it did not."""

    value: Any = None
    failure: str | None = None


def outcomes(
    function: Callable[[Any], Any], arguments: Sequence[Any], *, workers: int, seconds: float = _WHOLE_DAY, fresh: bool = False
) -> Iterator[tuple[int, Outcome]]:
    """The place of each argument and its outcome, as they come.

    Args:
        function: importable by name; arguments and results can be pickled. What it prints goes to standard error.
        workers: processes side by side. After a failure a process is replaced, since a GPU that met an illegal address answers no
            later call of the same process. 0 calls in this process, one after another.
        seconds: a call that takes longer fails.
        fresh: a new process for every call.
    """
    if workers == 0:
        for place, argument in enumerate(arguments):
            yield place, _call(function, argument)
        return
    waiting = list(enumerate(arguments))[::-1]
    running: list[_Worker] = []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                running.append(_Worker(function))
                running[-1].begin(*waiting.pop(), seconds)
            for worker in _ready(running):
                outcome = worker.outcome(seconds)
                yield worker.place, outcome
                if waiting and outcome.failure is None and not fresh:
                    worker.begin(*waiting.pop(), seconds)
                else:
                    running.remove(worker)
                    worker.end()
    finally:
        for worker in running:
            worker.end(at_once=True)


def one_line(error: BaseException) -> str:
    """An exception as a row of a table shows it."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def _call(function: Callable[[Any], Any], argument: Any) -> Outcome:
    try:
        return Outcome(function(argument))
    except Exception as error:  # whatever it is, it belongs to this call alone
        return Outcome(failure=one_line(error))


class _Worker:
    """A process, and the call that it is at."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        context = multiprocessing.get_context("spawn")  # a forked process could not use the GPU
        self.connection, far = context.Pipe()
        self.process = context.Process(target=_serve, args=(far, function), daemon=True)
        self.process.start()
        far.close()
        self.place, self.deadline = -1, 0.0

    def begin(self, place: int, argument: Any, seconds: float) -> None:
        self.place, self.deadline = place, time.monotonic() + seconds
        self.connection.send(argument)

    def outcome(self, seconds: float) -> Outcome:
        """Of a call that is over, one way or another."""
        if not self.connection.poll():
            self.process.kill()
            return Outcome(failure=f"took longer than {seconds:.0f} s")
        try:
            outcome: Outcome = self.connection.recv()
        except EOFError:
            self.process.join()
            code = self.process.exitcode or 0
            return Outcome(failure=f"its process died with {signal.Signals(-code).name if code < 0 else f'exit code {code}'}")
        return outcome

    def end(self, *, at_once: bool = False) -> None:
        self.connection.close()  # the process ends when it finds nobody at the other end
        self.process.join(0 if at_once else _ENDING_SECONDS)
        self.process.kill()


def _ready(running: list[_Worker]) -> list[_Worker]:
    """Those whose call is over or overdue; waits for the first."""
    left = max(0.0, min(worker.deadline for worker in running) - time.monotonic())
    heard = wait([worker.connection for worker in running], left)
    return [worker for worker in running if worker.connection in heard or worker.deadline <= time.monotonic()]


def _serve(connection: Connection, function: Callable[[Any], Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt ends the process that started this one, and with it this one
    os.dup2(2, 1)
    while True:
        try:
            argument = connection.recv()
        except EOFError:
            return
        connection.send(_call(function, argument))
