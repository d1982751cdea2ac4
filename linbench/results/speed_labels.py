"""How a speed was measured, in words."""

OURS = "linbench"
"""Among the sides of a result."""

REPLAYED, AS_CALLED = "replayed", "as_called"
"""Two ways of timing a call: from a CUDA graph, the device alone; and as a caller waits for it."""

HOW = {REPLAYED: "on the device alone", AS_CALLED: "as called"}
"""In words."""
