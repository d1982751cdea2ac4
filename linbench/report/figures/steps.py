"""Speeds of whole training steps, beside those of peers."""

from linbench.report.style.bench_rows import bench_figure
from linbench.results.store import STEP

FIGURE = bench_figure(STEP, "Training steps", order=310)
