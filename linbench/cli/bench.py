"""`linbench bench`: speed and memory."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from linbench.cli.options import JsonOption

bench = typer.Typer(help="Speed and memory, measured beside the peers.", no_args_is_help=True)


@bench.command("ops")
def ops(
    operations: Annotated[str | None, typer.Option("--ops", metavar="NAMES", help="Operations, separated by commas; default: all.")] = None,
    shapes: Annotated[str | None, typer.Option(help="Such as B256xT256xH2xD64,B8xT4096xH16xD128.")] = None,
    dtype: Annotated[str | None, typer.Option(help="bf16 or fp32; default: fp32 on a CPU, else bf16.")] = None,
    peer: Annotated[str | None, typer.Option(help="fla or transformers: measure it too, in turn with ours.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    repeat: Annotated[int | None, typer.Option(min=1, help="Calls that a median is of; default: 100, on a CPU 20.")] = None,
    first_call: Annotated[bool, typer.Option("--first-call", help="Also the seconds of the first call, with an empty cache.")] = False,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep what --json prints in this file, after every row.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Kernels, forward and backward: as called, on the device alone, memory, and how near they come to what the device could do."""
    from linbench.benchmark.operations import parse_shapes
    from linbench.benchmark.ops import plan, run
    from linbench.benchmark.report import LEFT, columns, sentences
    from linbench.environment import environment
    from linbench.plan import pick_device
    from linbench.report.lines import show
    from linbench.store import storage_sentence

    tasks = plan(
        device=pick_device(device),
        operations=[name.strip() for name in operations.split(",")] if operations else (),
        shapes=parse_shapes(shapes) if shapes else (),
        dtype=dtype,
        peer=peer,
        repeats=repeat,
    )
    where = environment(tasks[0].device)

    def keep(found: dict[str, Any]) -> None:
        if save is not None:
            with storage_sentence(save, "cannot write"):
                save.write_text(json.dumps({"environment": where, **found}), encoding="utf-8")

    found = run(tasks, first_calls=first_call, tell=lambda line: print(line, file=sys.stderr, flush=True), keep=keep)
    if as_json:
        print(json.dumps({"environment": where, **found}))
        return
    show(*columns(found["rows"], peer), left=LEFT)
    print()
    print("\n".join(sentences(found)))
