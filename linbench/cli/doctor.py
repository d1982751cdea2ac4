"""The verb `linbench doctor`: whether kernels compute correctly on this machine."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linbench.cli.options import JsonOption, whole_option
from linbench.common.errors import EXIT_NO
from linbench.common.streams import tell
from linbench.engine.executors.local import MOST_WORKERS

if TYPE_CHECKING:
    from linbench.verify.doctor import Verdict


def doctor(
    kernels: Annotated[
        list[str] | None, typer.Argument(metavar="[KERNEL]...", help="Kernels to test; default: all.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    workers: Annotated[
        int | None,
        whole_option(
            "--workers",
            0,
            MOST_WORKERS,
            help="Processes side by side; by default none on a CPU, up to 12 on a GPU.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the environment and compare every kernel on this device with float64.

    Each row is a kernel with its options in one precision. It shows the largest relative error of outputs and
    state, that of gradients, the limits of both, and the seconds of the first call. The exit code is 1 if an
    error is above its limit.
    """
    from linbench.experiments.device import pick_device
    from linbench.report.terminal import show
    from linbench.results.environment import environment
    from linbench.verify.doctor import examine, how_kernels_run, rows, side_by_side

    place = pick_device(device)
    selected = rows(place, kernels or ())
    done = 0

    def tell_row(verdict: "Verdict") -> None:
        nonlocal done
        done += 1
        row = verdict.row
        tell(f"{done}/{len(selected)} {row.kernel}, {row.case}, {row.precision}: {verdict.reason or 'ok'}")

    verdicts = examine(selected, workers=side_by_side(place) if workers is None else workers, tell=tell_row)
    wrong = sum(not verdict.ok for verdict in verdicts)
    surroundings = environment(place)
    if as_json:
        answer = {
            "environment": surroundings,
            "kernels": how_kernels_run(place),
            "ok": not wrong,
            "rows": [verdict.as_dict() for verdict in verdicts],
        }
        print(json.dumps(answer))
    else:
        for name, value in {**surroundings, "kernels run": how_kernels_run(place)}.items():
            print(f"{name}: {_in_words(value)}")
        print()
        left = ("kernel", "case", "precision", "verdict")
        show(
            [*left[:3], "error / limit", "gradients / limit", "first call", left[3]],
            [_table_row(verdict) for verdict in verdicts],
            left=left,
        )
    if wrong:
        tell(f"linbench: {wrong} of {len(verdicts)} rows are wrong on this machine.")
        raise typer.Exit(EXIT_NO)


def _in_words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {part}" for name, part in value.items())
    return str(value)


def _table_row(verdict: "Verdict") -> list[str]:
    row, fields = verdict.row, verdict.as_dict()
    pairs = ((fields["error"], fields["limit"]), (fields["gradient_error"], fields["gradient_limit"]))
    errors = [f"{'–' if error is None else f'{error:.1e}'} / {limit:.1e}" for error, limit in pairs]
    seconds = "–" if verdict.seconds is None else f"{verdict.seconds:.2f} s"
    return [
        row.kernel,
        row.case,
        row.precision,
        *errors,
        seconds,
        "ok" if verdict.ok else f"WRONG: {verdict.reason}",
    ]
