"""Synthetic tasks, one file for each, with exact solvers, chance levels and slices."""
