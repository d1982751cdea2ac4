"""Kernels in Triton's interpreter, on the CPU. Triton reads the variable when it is first imported, so these tests want a process of their own."""

from linbench.kernels.operators import INTERPRETED

collect_ignore_glob = [] if INTERPRETED else ["*"]
