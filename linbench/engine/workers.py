"""A function applied to many arguments in processes of their own: what raises, crashes or hangs costs one
call, not the others."""

import signal
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any, Generic, NamedTuple, TypeVar

from linbench.common.errors import DeviceLostError, Signalled, StorageError, message_of
from linbench.common.memory import in_gib, memory, resident
from linbench.engine.processes import CUT_OFF, Child

_STARTING_SECONDS = 300.0
_ENDING_SECONDS = 5.0
_LOOK_SECONDS = 0.25
"""Between two looks at the memory of this machine."""

_WHOLE_DAY = 86400.0
_FROM_OUTSIDE = {
    getattr(signal, name, None) for name in ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT")
}
"""Signals that another process sends; a layer that crashes dies with others."""


T = TypeVar("T")
Tell = Callable[[Any], None]


class Told(NamedTuple):
    """What a call says before it is over."""

    message: Any


class Ready(NamedTuple):
    """What a worker says when it has started and reads its first call."""


class Outcome(NamedTuple):
    """What a call returned, or in one line why it did not.

    late: it was ended because it took or was silent for too long. lost: with its process, its GPU or its
        machine, which may be another's doing. outside:
    what ended it was not the call itself, as far as can be told, such as a signal that somebody sent. full:
    it had taken the memory of this machine.
    storage: what it raised because something cannot be kept, which is no fault of its own. worn: it has left
        threads or processes behind, or has
    changed torch, so that its process serves no other call.
    """

    value: Any = None
    failure: str | None = None
    late: bool = False
    lost: bool = False
    outside: bool = False
    full: bool = False
    storage: StorageError | None = None
    worn: bool = False


def outcomes(
    function: Callable[..., Any],
    arguments: Iterable[Any],
    *,
    workers: int,
    seconds: float = _WHOLE_DAY,
    fresh: bool = False,
    tell: Tell | None = None,
    environments: Sequence[Mapping[str, str]] | None = None,
    kind: Callable[[Any], Hashable] = lambda argument: None,
) -> Iterator[tuple[int, Outcome]]:
    """The place of each argument and its outcome, as they come.

    Args:
        function: importable by name; arguments and results can be pickled. What it prints goes to standard
            error.
        arguments: each is taken when a worker is free for it. None is no argument: there is none now, but may
            be after the next outcome.
        workers: processes side by side, each of which ends with all that it has started. After a failure a
            process is replaced, since a GPU that met an illegal address answers no later call of the same
            process. 0 calls in this process, one after another.
        seconds: a call that takes longer, or with `tell` is silent for longer, fails.
        fresh: a new process for every call.
        tell: hears what calls say: `function` is given a second argument, to say it with.
        environments: variables for each worker, set before it begins.
        kind: of an argument. Those of different kinds are never given to one process. After a call of a kind
            that is not None, a process that has threads or processes left from it is replaced.

    Raises StorageError: a call did.
    """
    if workers == 0:
        for place, argument in enumerate(each for each in arguments if each is not None):
            yield place, _kept(called(function, argument, tell))
        return
    waiting = Waiting(arguments)
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
                heard = worker.heard(seconds)
                if isinstance(heard, Ready):
                    continue
                if isinstance(heard, Told):
                    assert tell is not None
                    tell(heard.message)
                    continue
                yield worker.place, _kept(heard)
                team.over(
                    worker,
                    again=heard.failure is None
                    and not fresh
                    and not (worker.kind is not None and heard.worn),
                )
    finally:
        team.end()


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
    text = " ".join(message_of(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def called(function: Callable[..., Any], argument: Any, tell: Tell | None) -> Outcome:
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


def _kept(outcome: Outcome) -> Outcome:
    """The outcome, unless there was no keeping it."""
    if outcome.storage is not None:
        raise outcome.storage
    return outcome


class _Worker:
    """A process, and the call that it is at."""

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
        self.place, self.deadline, self.starting = -1, 0.0, True
        self._send((function, talks))

    def begin(self, place: int, argument: Any, seconds: float) -> None:
        """Hand it a call. Time counts from when the process has started, which on a busy machine takes
        long."""
        self.place, self.deadline = (
            place,
            time.monotonic() + (max(seconds, _STARTING_SECONDS) if self.starting else seconds),
        )
        self._send(argument)

    def _send(self, message: Any) -> None:
        with suppress(OSError):  # of one that died meanwhile the end is heard next
            self.connection.send(message)

    def heard(self, seconds: float) -> Ready | Told | Outcome:
        """What a call says, or its outcome if it is over, one way or another."""
        try:
            if not self.connection.poll():
                return self._without_memory() if time.monotonic() < self.deadline else self._overdue(seconds)
            heard: Ready | Told | Outcome = self.connection.recv()
        # it died: between two messages, before it had read its argument, or in the middle of a message
        except (EOFError, OSError):
            return self._gone()
        self.deadline, self.starting = time.monotonic() + seconds, False
        return heard

    def _overdue(self, seconds: float) -> Outcome:
        self.process.kill()
        return Outcome(
            failure=(
                f"said nothing for {seconds:.0f} s and was ended"
                if self.talks
                else f"took longer than {seconds:.0f} s"
            ),
            late=True,
        )

    def _without_memory(self) -> Outcome:
        """It is the largest, and the memory of this machine is full."""
        used, machine = resident(self.process.pids), memory()
        self.process.kill()
        total = machine.total if machine else 0
        failure = (
            f"its process held {in_gib(used)} when this machine's memory of {in_gib(total)} was nearly full,"
            " and was ended"
        )
        return Outcome(failure=failure, full=True, outside=2 * used < total)

    def _gone(self) -> Outcome:
        """Of a process that says nothing any more: it has ended, or will never be heard again."""
        if not self.process.ended(_ENDING_SECONDS) or self.process.code == CUT_OFF:
            self.process.kill()
            return Outcome(failure="it closed the descriptors of its process")
        code = self.process.code or 0
        self.process.kill()  # what it has left
        name = _signal_name(-code) if code < 0 else f"exit code {code}"
        return Outcome(failure=f"its process died with {name}", outside=-code in _FROM_OUTSIDE)

    def end(self, *, at_once: bool = False) -> None:
        self.connection.close()  # the process ends when it finds nobody at the other end
        self.process.ended(0.0 if at_once else _ENDING_SECONDS)
        self.process.kill()


class _Team:
    """Workers, one in each of some environments at most; idle ones wait for a call of their kind."""

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

    def begin(self, place: int, argument: Any, kind: Hashable, seconds: float) -> None:
        """Give a call to an idle worker of the kind, else to a new one, if need be in the place of an idle
        one of another kind."""
        alike = [worker for worker in self._idle if worker.kind == kind]
        if alike:
            worker = _least_busy(alike, self.running)
            self._idle.remove(worker)
        else:
            if not self._free:
                self._end(self._idle.pop(0))
            worker = _Worker(self._function, self._free.pop(), talks=self._talks, kind=kind)
        self.running.append(worker)
        worker.begin(place, argument, seconds)

    def ready(self) -> list[_Worker]:
        """Those that have something to say, are overdue, or must end for want of memory; waits for the
        first."""
        while True:
            left = max(0.0, min(worker.deadline for worker in self.running) - time.monotonic())
            heard = wait([worker.connection for worker in self.running], min(left, _LOOK_SECONDS))
            found = [
                worker
                for worker in self.running
                if worker.connection in heard or worker.deadline <= time.monotonic()
            ]
            if found or (found := self._too_large()):
                return found

    def _too_large(self) -> list[_Worker]:
        """The worker that has taken the memory of this machine, if that is full and one has."""
        machine = memory()
        if machine is None or not machine.short:
            return []
        used = [resident(worker.process.pids) for worker in self.running]
        return [self.running[used.index(max(used))]] if machine.taken_largely(max(used)) else []

    def over(self, worker: _Worker, *, again: bool) -> None:
        """A call is over; its worker serves others if `again`."""
        self.running.remove(worker)
        if again:
            self._idle.append(worker)
        else:
            self._end(worker)

    def dismiss(self) -> None:
        """End those that are idle."""
        while self._idle:
            self._end(self._idle.pop())

    def end(self) -> None:
        """End all, whatever they are at."""
        for worker in self.running + self._idle:
            worker.end(at_once=True)

    def _end(self, worker: _Worker) -> None:
        self._free.append(worker.environment)
        worker.end()


def _least_busy(idle: list[_Worker], running: list[_Worker]) -> _Worker:
    """Of the idle ones that one which shares its environment, and so its GPU, with the fewest that run."""
    shared = [sum(other.environment == worker.environment for other in running) for worker in idle]
    return idle[shared.index(min(shared))]


def _signal_name(number: int) -> str:
    """Real-time signals have none."""
    return signal.Signals(number).name if number in {*signal.Signals} else f"signal {number}"
