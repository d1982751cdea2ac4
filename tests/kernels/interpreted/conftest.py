"""Tests that run in Triton's interpreter alone: on a GPU others take their place."""

from linbench.kernels.operators import INTERPRETED

collect_ignore_glob = [] if INTERPRETED else ["*"]
