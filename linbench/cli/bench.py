"""`linbench bench`: speed and memory."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from linbench.cli import bench_layers
from linbench.cli.options import JsonOption, names, numbers

bench = typer.Typer(help="Speed and memory, measured beside the peers.", no_args_is_help=True)
bench.command("length")(bench_layers.length)
bench.command("prefill")(bench_layers.prefill)
bench.command("decode")(bench_layers.decode)
bench.command("memory")(bench_layers.memory)
bench.command("forms")(bench_layers.forms)


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
    from linbench.plan import pick_device
    from linbench.report.lines import show

    tasks = plan(
        device=pick_device(device),
        operations=names("--ops", operations),
        shapes=parse_shapes(shapes) if shapes is not None else (),
        dtype=dtype,
        peer=peer,
        repeats=repeat,
    )
    found = _kept(lambda keep: run(tasks, first_calls=first_call, tell=_tell, keep=keep), tasks[0].device, save)
    if as_json:
        print(json.dumps(found))
        return
    show(*columns(found["rows"], peer), left=LEFT)
    print()
    print("\n".join(sentences(found)))


@bench.command("train")
def train(
    models: Annotated[str | None, typer.Option("--models", metavar="NAMES", help="Layer patterns, separated by commas; default: those of the peer.")] = None,
    shapes: Annotated[str | None, typer.Option(help="Such as B512xT64xD64,B128xT256xD128.")] = None,
    replicas: Annotated[str, typer.Option(metavar="NUMBERS", help="Models trained as one program, such as 1,12.")] = "1",
    dtype: Annotated[str | None, typer.Option(help="bf16 or fp32; default: fp32 on a CPU, else bf16.")] = None,
    peer: Annotated[str | None, typer.Option(help="zoology-style: measure it too, in turn with ours; it needs flash-linear-attention.")] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Also where the time of a step goes on a GPU.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    repeat: Annotated[int | None, typer.Option(min=1, help="Windows that a median is of; default: 9, on a CPU 5.")] = None,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep what --json prints in this file, after every row.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Whole training steps: milliseconds, tokens per second, memory, and where the time goes."""
    from linbench.benchmark.report import TRAIN_LEFT, parts_table, train_columns
    from linbench.benchmark.train import parse_shapes, plan, run
    from linbench.plan import pick_device
    from linbench.report.lines import show

    rows = plan(
        device=pick_device(device),
        models=names("--models", models),
        shapes=parse_shapes(shapes) if shapes is not None else (),
        replicas=numbers("--replicas", replicas),
        precision=dtype,
        peer=peer,
        repeats=repeat,
        by_part=profile,
    )
    found = _kept(lambda keep: run(rows, tell=_tell, keep=keep), rows[0].device, save)
    if as_json:
        print(json.dumps(found))
        return
    show(*train_columns(found["rows"], peer), left=TRAIN_LEFT)
    if profile:
        print()
        show(*parts_table(found["rows"]), left=TRAIN_LEFT)
    print()
    print("\n".join(found["notes"]))


@bench.command("data")
def data(
    tasks: Annotated[str | None, typer.Option("--tasks", metavar="NAMES", help="TASK or TASK/PRESET, separated by commas; default: all.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    peer: Annotated[str | None, typer.Option(help="numpy: measure it too, in turn with ours, on a CPU.")] = None,
    repeat: Annotated[int | None, typer.Option(min=1, help="Draws that a median is of; default: 50, on a CPU 5.")] = None,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep what --json prints in this file, after every row.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Drawing examples: tokens per second; on a CPU the time of 100,000 examples on one core, on a GPU that of a batch of 2^18 tokens."""
    from linbench.benchmark.data import LEFT, columns, plan, run
    from linbench.plan import pick_device
    from linbench.report.lines import show

    rows, where = plan(names("--tasks", tasks)), pick_device(device)
    found = _kept(lambda keep: run(rows, device=where, peer=peer, repeats=repeat, tell=_tell, keep=keep), where, save)
    if as_json:
        print(json.dumps(found))
        return
    show(*columns(found), left=LEFT)
    print()
    print("\n".join(found["notes"]))


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _kept(run: Callable[[Callable[[dict[str, Any]], None]], dict[str, Any]], device: str, save: Path | None) -> dict[str, Any]:
    """What a benchmark finds with the environment beside it, written after every row as well."""
    from linbench.environment import environment
    from linbench.store import check_writable, storage_sentence

    where = environment(device)
    if save is not None:
        check_writable(save, "cannot write", "--save")

    def keep(found: dict[str, Any]) -> None:
        if save is not None:
            with storage_sentence(save, "cannot write", "--save"):
                save.write_text(json.dumps({"environment": where, **found}), encoding="utf-8")

    return {"environment": where, **run(keep)}
