"""Results: their types, the store, comparisons, statistics and the gate."""
