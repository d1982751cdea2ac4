"""Cells as programs: groups, training, workers, executors."""
