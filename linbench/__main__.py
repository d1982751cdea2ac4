"""`python -m linbench` is `linbench`."""

from linbench.cli import main

main()
