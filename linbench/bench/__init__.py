"""How fast is it, and how much memory does it take? Measured beside the peers, in the same run."""
