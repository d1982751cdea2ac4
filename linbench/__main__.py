"""Run the command line by `python -m linbench`."""

from linbench.cli import main

main()
