"""The command line: one file for each verb, which parses, calls and prints."""

import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from linbench.cli import (
    bench,
    check,
    claims,
    compare,
    doctor,
    figures,
    gate,
    listing,
    probe,
    report,
    reproduce,
    results,
    run,
    show,
    site,
    submit,
    sweep,
    table,
    untrained,
)
from linbench.cli.help import help_of
from linbench.common import escape, streams
from linbench.common.errors import (
    EXIT_BUG,
    EXIT_INTERRUPTED,
    EXIT_STORAGE,
    EXIT_TERMINATED,
    EXIT_USAGE,
    Signalled,
    UserError,
    brief,
    message_of,
    nearest_quoted,
)
from linbench.common.memory import collect_rarely
from linbench.common.quick_exit import exit_now, needs_quick_exit
from linbench.engine import processes

app = typer.Typer(
    name="linbench",
    help=(
        "What can a sequence-mixing layer remember, overwrite, filter and track, at what state size, and at"
        " what speed?"
    ),
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
VERBS: dict[str, Callable[..., Any]] = {
    "run": run.run,
    "sweep": sweep.sweep,
    "probe": probe.probe,
    "compare": compare.compare,
    "gate": gate.gate,
    "submit": submit.submit,
    "table": table.table,
    "figures": figures.figures,
    "report": report.report,
    "site": site.site,
    "check": check.check,
    "list": listing.list_,
    "show": show.show,
    "doctor": doctor.doctor,
    "untrained": untrained.untrained,
    "claims": claims.claims,
    "reproduce": reproduce.reproduce,
}
for _name, _verb in VERBS.items():
    app.command(_name, help=help_of(_verb))(_verb)
app.add_typer(bench.bench, name="bench")
app.add_typer(results.results, name="results")


@app.callback()
def linbench(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        from linbench import __version__

        print(f"linbench {__version__}")
        raise typer.Exit


_ENDINGS = {signal.SIGINT: ("interrupted", EXIT_INTERRUPTED), signal.SIGTERM: ("terminated", EXIT_TERMINATED)}
"""The word of the message and the exit code for each signal that a user or scheduler sends."""


def main() -> NoReturn:
    """Run the verb of the command line and exit with its code, whatever a user's code has left running."""
    streams.prepare()
    streams.keep_output()
    mark = processes.mark_children()
    code = answer()
    if _must_leave_at_once():
        processes.kill_marked(mark)
        exit_now(code)
    sys.exit(code)


def answer() -> int:
    """Run the verb of the command line and return its exit code; any error becomes one sentence."""
    streams.prepare()
    # a notebook's backend may not be installed here; importing matplotlib would then fail
    os.environ["MPLBACKEND"] = "agg"
    if "OMP_WAIT_POLICY" not in os.environ:  # before torch is imported; docs/decisions/0005
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    collect_rarely()
    for number in _ENDINGS:
        signal.signal(number, _raise_signalled)
    try:
        result = app(standalone_mode=False, prog_name="linbench")
        code = result if isinstance(result, int) else 0
    except UserError as error:
        code = _say(f"linbench: {error}", error.exit_code)
        if error.adapter:
            print(f"\n{escape.visible(error.adapter)}", file=sys.stderr)
    except (Signalled, KeyboardInterrupt) as signalled:
        _ignore_signals()
        number = signalled.args[0] if isinstance(signalled, Signalled) else signal.SIGINT
        word, code = _ENDINGS[number]
        _say(
            f"linbench: {word}; finished results are kept. Run the same command again to continue.",
            code,
        )
    except BaseException as error:  # SystemExit, too: only a user's code raises it
        code = _say_error(error)
    _ignore_signals()
    if reason := streams.refusal():
        code = _say(
            f"linbench: standard output could not be written completely: {reason}. Finished results are"
            " kept.",
            code or EXIT_STORAGE,
        )
    return code


def _say_error(error: BaseException) -> int:
    if isinstance(error, _click_errors()):
        return _say_usage(error)
    if place := _place_in_plugin(error):
        message = message_of(error)
        end = f": {message}" if message else ""
        return _say(f"linbench: your code failed at {place}{type(error).__name__}{end}", EXIT_USAGE)
    # the operating system refuses a path, such as one that is too long
    if isinstance(error, OSError) and error.filename is not None:
        return _say(f"linbench: cannot use {error.filename}: {error.strerror}.", EXIT_STORAGE)
    if isinstance(error, SystemExit):  # typer ends so after it has completed a word
        return int(error.code or 0)
    import traceback

    print(escape.visible("".join(traceback.format_exception(error))), file=sys.stderr, end="")
    return _say(
        "linbench: this is a bug in linbench, not in what you typed; please report it with the lines above.",
        EXIT_BUG,
    )


def _must_leave_at_once() -> bool:
    """Return whether to skip the ordinary end of the process.

    It would wait for threads, and run exit handlers of plugins, which may print.
    """
    this = threading.current_thread()
    if any(not thread.daemon and thread is not this for thread in threading.enumerate()):
        return True
    loading = sys.modules.get("linbench.experiments.loading")
    return needs_quick_exit() or (loading is not None and loading.has_user_modules())


def _place_in_plugin(error: BaseException) -> str:
    """Return the place in a plugin that an exception came from; empty for one of linbench's own."""
    from linbench.experiments.loading import user_location

    return user_location(error)


def _click_errors() -> type[Exception]:
    """Return the class of the parser's own errors, such as an unknown option."""
    return next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def _say_usage(error: Any) -> int:
    """Print the parser's own error as one sentence; without arguments print the help instead."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return int(error.exit_code)
    sentence = error.format_message().rstrip(".?").replace(": Value error, ", ": ").replace(". Did", "; did")
    value = _refused_value(error)
    if value and f"'{value}'" not in sentence:
        sentence = f"{sentence}, not '{value}'"
    choice = re.search("'([^']*)' is not one of (.*)", sentence)
    hint = nearest_quoted(*choice.groups()) if choice else ""
    if hint:
        sentence = f"{sentence}; {hint.removesuffix('?')}"
    see_help = f"; see {error.ctx.command_path} --help" if getattr(error, "ctx", None) else ""
    return _say(f"linbench: {sentence[:1].lower()}{sentence[1:]}{see_help}.", error.exit_code)


def _refused_value(error: Any) -> str:
    """Return the value that an option cannot take; empty if the parser does not tell."""
    wrong: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    return str(wrong[0].get("input", "")) if wrong else ""


def _raise_signalled(number: int, frame: FrameType | None) -> NoReturn:
    raise Signalled(number)


def _ignore_signals() -> None:
    """Ignore further signals, such as the second one of `timeout`: the process is ending already."""
    for number in _ENDINGS:
        signal.signal(number, signal.SIG_IGN)


def _say(sentence: str, code: int) -> int:
    streams.tell(brief(sentence))
    return code
