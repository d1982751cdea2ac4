"""Calls of a function in worker processes: one that raises, crashes or hangs does not cost the others."""

import signal
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any, Generic, NamedTuple, TypeVar

from linbench.common.errors import DeviceLostError, Signalled, StorageError, message_of
from linbench.common.memory import in_gib, memory, resident_bytes
from linbench.engine.processes import CUT_OFF, Child

_STARTING_SECONDS = 300.0
"""Seconds that a worker may take to start, on a busy machine."""

_ENDING_SECONDS = 5.0
"""Seconds that a worker may take to end by itself before it is killed."""

_LOOK_SECONDS = 0.25
"""Seconds between two looks at the memory of this machine."""

_ONE_DAY = 86400.0
_FROM_OUTSIDE = {
    getattr(signal, name, None) for name in ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT")
}
"""Signals that another process sends. A layer that crashes dies with other signals."""


T = TypeVar("T")
Tell = Callable[[Any], None]


class CallMessage(NamedTuple):
    """A message of a call that is not over."""

    message: Any


class Ready(NamedTuple):
    """The message of a worker that has started and reads its first call."""


class Outcome(NamedTuple):
    """The result of a call, or the reason why there is none."""

    value: Any = None
    failure: str | None = None
    """The reason in one line."""
    late: bool = False
    """True if it was ended because it took, or was silent for, too long."""
    lost: bool = False
    """True if it was lost with its process, GPU or machine, which may be another's doing."""
    outside: bool = False
    """True if something else than the call ended it, as far as is known, such as a signal from elsewhere."""
    full: bool = False
    """True if it had taken the memory of this machine."""
    storage: StorageError | None = None
    """The error by which the call said that something cannot be kept."""
    worn: bool = False
    """True if it left threads or processes behind, or changed torch: its process serves no other call."""


def outcomes(
    function: Callable[..., Any],
    arguments: Iterable[Any],
    *,
    workers: int,
    seconds: float = _ONE_DAY,
    fresh: bool = False,
    tell: Tell | None = None,
    environments: Sequence[Mapping[str, str]] | None = None,
    kind: Callable[[Any], Hashable] = lambda argument: None,
) -> Iterator[tuple[int, Outcome]]:
    """Call a function with each argument, and yield the number of the argument and the outcome as they come.

    Args:
        function: importable by name; its arguments and results can be pickled. What it prints goes to
            standard error.
        arguments: each is taken when a worker is free for it. None means: there is no argument now, but there
            may be one after the next outcome.
        workers: processes side by side, each of which ends with all that it has started. After a failure a
            process is replaced, since a GPU that met an illegal address answers no later call of the same
            process. 0 calls in this process, one after another.
        seconds: a call that takes longer, or with `tell` is silent for longer, fails.
        fresh: a new process for every call.
        tell: gets messages of calls. `function` then gets a second argument, to send them with.
        environments: variables for each worker, set before it begins.
        kind: the kind of an argument. Arguments of different kinds are never given to one process. After a
            call of a kind that is not None, a process that has threads or processes left from it is replaced.

    Raises StorageError: a call raised it.
    """
    if workers == 0:
        for number, argument in enumerate(each for each in arguments if each is not None):
            yield number, _raise_storage_error(call(function, argument, tell))
        return
    waiting = ArgumentQueue(arguments)
    team = _Team(function, environments or [{}] * workers, talks=tell is not None)
    try:
        while True:
            while team.has_place and (following := waiting.next()):
                team.begin(*following, kind(following[1]), seconds)
            if waiting.over:
                team.dismiss()
            if not team.running:
                return
            for worker in team.ready():
                received = worker.receive(seconds)
                if isinstance(received, Ready):
                    continue
                if isinstance(received, CallMessage):
                    assert tell is not None
                    tell(received.message)
                    continue
                yield worker.number, _raise_storage_error(received)
                worn = worker.kind is not None and received.worn
                team.release(worker, reusable=received.failure is None and not fresh and not worn)
    finally:
        team.end()


class ArgumentQueue(Generic[T]):
    """Arguments with their numbers. over: no more will come."""

    def __init__(self, arguments: Iterable[T | None]) -> None:
        self._arguments, self._number, self.over = iter(arguments), -1, False

    def next(self) -> tuple[int, T] | None:
        """Return the next argument with its number; None if there is none, for now or for good."""
        if self.over:
            return None
        try:
            argument = next(self._arguments)
        except StopIteration:
            self.over = True
            return None
        if argument is None:
            return None
        self._number += 1
        return self._number, argument


def one_line(error: BaseException) -> str:
    """Return an exception in one line, as tables show it."""
    text = " ".join(message_of(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def call(function: Callable[..., Any], argument: Any, tell: Tell | None) -> Outcome:
    """Return the outcome of one call, in this process."""
    try:
        return Outcome(function(argument) if tell is None else function(argument, tell))
    except StorageError as error:
        return Outcome(storage=error)
    except DeviceLostError as error:
        return Outcome(failure=str(error), lost=True, outside=True)
    except (Signalled, KeyboardInterrupt):
        raise
    except BaseException as error:  # whatever it is, SystemExit too, it belongs to this call alone
        return Outcome(failure=one_line(error))


def _raise_storage_error(outcome: Outcome) -> Outcome:
    """Return the outcome, or raise the storage error of its call."""
    if outcome.storage is not None:
        raise outcome.storage
    return outcome


class _Worker:
    """A worker process, and its present call."""

    def __init__(
        self,
        function: Callable[..., Any],
        environment: Mapping[str, str],
        *,
        talks: bool,
        kind: Hashable = None,
    ) -> None:
        self.environment, self.talks, self.kind = environment, talks, kind
        self.process = Child(environment)
        self.connection = self.process.connection
        self.number, self.deadline, self.starting = -1, 0.0, True
        self._send((function, talks))

    def begin(self, number: int, argument: Any, seconds: float) -> None:
        """Hand it a call. Its time counts from when the process has started, which may take long."""
        self.number = number
        allowed = max(seconds, _STARTING_SECONDS) if self.starting else seconds
        self.deadline = time.monotonic() + allowed
        self._send(argument)

    def _send(self, message: Any) -> None:
        with suppress(OSError):  # if it has died, `receive` will tell
            self.connection.send(message)

    def receive(self, seconds: float) -> Ready | CallMessage | Outcome:
        """Return a message of the call, or its outcome.

        A worker without a message is overdue, or has taken the memory of this machine; it is ended.
        """
        try:
            if not self.connection.poll():
                overdue = time.monotonic() >= self.deadline
                return self._end_overdue(seconds) if overdue else self._end_for_memory()
            received: Ready | CallMessage | Outcome = self.connection.recv()
        # it died: between two messages, before it had read its argument, or in the middle of a message
        except (EOFError, OSError):
            return self._outcome_of_death()
        self.deadline, self.starting = time.monotonic() + seconds, False
        return received

    def _end_overdue(self, seconds: float) -> Outcome:
        self.process.kill()
        silent = f"said nothing for {seconds:.0f} s and was ended"
        return Outcome(failure=silent if self.talks else f"took longer than {seconds:.0f} s", late=True)

    def _end_for_memory(self) -> Outcome:
        used, machine = resident_bytes(self.process.pids), memory()
        self.process.kill()
        total = machine.total if machine else 0
        failure = (
            f"its process held {in_gib(used)} when this machine's memory of {in_gib(total)} was nearly full,"
            " and was ended"
        )
        return Outcome(failure=failure, full=True, outside=2 * used < total)

    def _outcome_of_death(self) -> Outcome:
        """Return the outcome of a worker that has ended, or has closed its connection."""
        if not self.process.ended(_ENDING_SECONDS) or self.process.code == CUT_OFF:
            self.process.kill()
            return Outcome(failure="it closed the descriptors of its process")
        code = self.process.code or 0
        self.process.kill()  # ends what it has started
        name = _signal_name(-code) if code < 0 else f"exit code {code}"
        return Outcome(failure=f"its process died with {name}", outside=-code in _FROM_OUTSIDE)

    def end(self, *, at_once: bool = False) -> None:
        self.connection.close()  # the process ends when it finds nobody at the other end
        self.process.ended(0.0 if at_once else _ENDING_SECONDS)
        self.process.kill()


class _Team:
    """Workers, at most one in each of some environments; idle ones wait for a call of their kind."""

    def __init__(
        self, function: Callable[..., Any], environments: Sequence[Mapping[str, str]], *, talks: bool
    ) -> None:
        self._function, self._talks = function, talks
        self._free = [*environments][::-1]
        self._idle: list[_Worker] = []
        self.running: list[_Worker] = []

    @property
    def has_place(self) -> bool:
        return bool(self._free or self._idle)

    def begin(self, number: int, argument: Any, kind: Hashable, seconds: float) -> None:
        """Give a call to an idle worker of its kind, else to a new one.

        If no environment is free, the new worker replaces an idle one of another kind.
        """
        alike = [worker for worker in self._idle if worker.kind == kind]
        if alike:
            worker = _least_busy(alike, self.running)
            self._idle.remove(worker)
        else:
            if not self._free:
                self._end(self._idle.pop(0))
            worker = _Worker(self._function, self._free.pop(), talks=self._talks, kind=kind)
        self.running.append(worker)
        worker.begin(number, argument, seconds)

    def ready(self) -> list[_Worker]:
        """Wait for workers that have a message, are overdue or must end for want of memory; return them."""
        while True:
            left = max(0.0, min(worker.deadline for worker in self.running) - time.monotonic())
            speaking = wait([worker.connection for worker in self.running], min(left, _LOOK_SECONDS))
            now = time.monotonic()
            due = [
                worker for worker in self.running if worker.connection in speaking or worker.deadline <= now
            ]
            if not due:
                due = self._too_large()
            if due:
                return due

    def _too_large(self) -> list[_Worker]:
        """Return the worker that has taken the memory of this machine, if it is full and one has."""
        machine = memory()
        if machine is None or not machine.short:
            return []
        used = [resident_bytes(worker.process.pids) for worker in self.running]
        return [self.running[used.index(max(used))]] if machine.taken_largely(max(used)) else []

    def release(self, worker: _Worker, *, reusable: bool) -> None:
        """Take a worker whose call is over from those that run; keep it idle, or end it."""
        self.running.remove(worker)
        if reusable:
            self._idle.append(worker)
        else:
            self._end(worker)

    def dismiss(self) -> None:
        """End the idle workers."""
        while self._idle:
            self._end(self._idle.pop())

    def end(self) -> None:
        """End all workers, whatever they are doing."""
        for worker in self.running + self._idle:
            worker.end(at_once=True)

    def _end(self, worker: _Worker) -> None:
        self._free.append(worker.environment)
        worker.end()


def _least_busy(idle: list[_Worker], running: list[_Worker]) -> _Worker:
    """Return the idle worker whose environment, and so its GPU, has the fewest running workers."""

    def neighbours(worker: _Worker) -> int:
        return sum(other.environment == worker.environment for other in running)

    return min(idle, key=neighbours)


def _signal_name(number: int) -> str:
    """Return the name of a signal; real-time signals have none."""
    return signal.Signals(number).name if number in {*signal.Signals} else f"signal {number}"
