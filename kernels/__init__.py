"""Kernels: one folder per family, with one door that callers import.

A family's folder holds

- `__init__.py`: the door, which checks shapes and chooses a backend, and `VERSION`;
- `reference.py`: the recurrence as a loop, to be read beside the paper, or `eager.py`: a small function in
  torch; `chunkwise.py`: a recurrence's fast form in torch;
- `triton.py` or `triton/`: kernels for a GPU;
- `cases.py`: `FAMILY`, by which tools find and verify it (`linbench.kernels.family`).
"""
