"""Runs the checks of `mutants` for one copy of linbench after another, each in a process that is forked when
torch and Triton are there: to import them takes longer than the checks.

A line of standard input has a folder with the copy and names of checks, parted by tabs; what they print is
left beside the copy in `out` and `err`, their exit code printed.
"""

import os
import runpy
import sys
from importlib import import_module

for name in ("pytest", "torch", "triton.language"):
    import_module(name)
for line in sys.stdin:
    copy, *checks = line.rstrip("\n").split("\t")
    child = os.fork()
    if child == 0:
        os.chdir(copy)
        for descriptor, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), descriptor)
        sys.path.insert(0, copy)
        sys.argv[1:] = checks
        runpy.run_module("tests.helpers.mutants", run_name="__main__")
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
