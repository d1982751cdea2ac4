"""Speeds of kernels, beside those of peers."""

from linbench.report.style.bench_rows import bench_figure
from linbench.results.store import OPERATION

FIGURE = bench_figure(OPERATION, "Kernels, forward and backward", order=300)
