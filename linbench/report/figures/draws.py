"""Speeds of the drawing of examples, beside those of peers."""

from linbench.report.style.bench_rows import bench_figure
from linbench.results.store import DRAW

FIGURE = bench_figure(
    DRAW, "Drawing examples", order=320, note=" Each preset of a task has a mark of its own."
)
