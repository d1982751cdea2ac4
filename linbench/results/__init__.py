"""What was measured: the store, what may stand side by side, statistics, the gate."""
