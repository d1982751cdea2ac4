"""What variants share: short convolution, projections into heads, gates, norms, positions."""
