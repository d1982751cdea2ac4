"""Is it right: laws of a mixer, errors of kernels, and what can be known without training."""
