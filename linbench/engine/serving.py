"""The main loop of a worker process: it answers calls that come through a connection, one after another."""

import pickle
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from linbench.common.errors import Signalled
from linbench.common.memory import collect_rarely
from linbench.common.quick_exit import exit_now
from linbench.engine.processes import CUT_OFF, be_killed_first, children, end_with_parent
from linbench.engine.workers import CallMessage, Outcome, Ready, Tell, call, one_line


def serve(connected: int, alive: int) -> None:
    """Answer calls until the process that started this one is gone.

    Args:
        connected: descriptor of the connection that calls come through.
        alive: descriptor of a pipe whose other end the starting process holds.
    """
    connection = Connection(connected)
    end_with_parent(alive)
    be_killed_first()
    # an interrupt ends the process that started this one, and with it this one
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    del sys.argv[1:]
    collect_rarely()
    function, talks = connection.recv()
    tell: Tell | None = (lambda message: _say(connection, CallMessage(message))) if talks else None
    threads = threading.active_count()
    _say(connection, Ready())
    while True:
        try:
            packed = connection.recv_bytes()
        except EOFError:
            exit_now(0)
        except OSError:
            exit_now(CUT_OFF)
        outcome = _answered(function, packed, tell)
        worn = threading.active_count() > threads or bool(children()) or _has_changed_torch()
        _say(connection, outcome._replace(worn=worn))


def _has_changed_torch() -> bool:
    """Return whether a call changed torch; torch is not loaded to find out."""
    surroundings = sys.modules.get("linbench.engine.surroundings")
    return surroundings is not None and surroundings.find_torch_change() is not None


def _answered(function: Callable[..., Any], packed: bytes, tell: Tell | None) -> Outcome:
    try:
        return call(partial(_unpacked, function), packed, tell)
    # a user's signal reaches the run alone, so a layer has raised this one
    except (Signalled, KeyboardInterrupt) as error:
        return Outcome(failure=one_line(error))


def _unpacked(function: Callable[..., Any], packed: bytes, *tell: Tell) -> Any:
    """Read the argument within the call, because reading may import a user's code."""
    return function(pickle.loads(packed), *tell)


def _say(connection: Connection, message: Ready | CallMessage | Outcome) -> None:
    try:
        connection.send(message)
    except OSError:  # nobody is there, or a layer has closed all descriptors
        exit_now(CUT_OFF)
    except Exception as error:
        if isinstance(message, CallMessage):
            raise
        connection.send(Outcome(failure=one_line(error)))  # it cannot be pickled
