"""Benchmarks of speed and memory, measured beside the peers in the same run."""
