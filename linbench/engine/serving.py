"""What a worker does: it answers the calls that come through a connection, one after another."""

import pickle
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from linbench.common.errors import Signalled
from linbench.common.leaving import leave
from linbench.engine.processes import CUT_OFF, be_killed_first, children, end_with_parent
from linbench.engine.workers import Outcome, Ready, Tell, Told, called, one_line


def serve(connected: int, alive: int) -> None:
    """Answer calls that come through the descriptor `connected`, as long as somebody is there, who holds the
    other end of `alive`, too."""
    connection = Connection(connected)
    end_with_parent(alive)
    be_killed_first()
    # an interrupt ends the process that started this one, and with it this one
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    del sys.argv[1:]
    function, talks = connection.recv()
    tell: Tell | None = (lambda message: _say(connection, Told(message))) if talks else None
    threads = threading.active_count()
    _say(connection, Ready())
    while True:
        try:
            packed = connection.recv_bytes()
        except EOFError:
            leave(0)
        except OSError:
            leave(CUT_OFF)
        outcome = _answered(function, packed, tell)
        _say(
            connection,
            outcome._replace(
                worn=threading.active_count() > threads or bool(children()) or _has_changed_torch()
            ),
        )


def _has_changed_torch() -> bool:
    """Whether a call has; torch is not loaded only to find out."""
    surroundings = sys.modules.get("linbench.engine.surroundings")
    return surroundings is not None and surroundings.tampered() is not None


def _answered(function: Callable[..., Any], packed: bytes, tell: Tell | None) -> Outcome:
    try:
        return called(partial(_unpacked, function), packed, tell)
    # no user's, who reaches the run alone: a layer has raised it
    except (Signalled, KeyboardInterrupt) as error:
        return Outcome(failure=one_line(error))


def _unpacked(function: Callable[..., Any], packed: bytes, *tell: Tell) -> Any:
    """To read an argument may import what a user brings, which is part of the call."""
    return function(pickle.loads(packed), *tell)


def _say(connection: Connection, message: Ready | Told | Outcome) -> None:
    try:
        connection.send(message)
    except OSError:  # nobody is there, or a layer has closed all descriptors
        leave(CUT_OFF)
    except Exception as error:
        if isinstance(message, Told):
            raise
        connection.send(Outcome(failure=one_line(error)))  # it cannot be pickled
