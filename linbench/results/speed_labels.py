"""Names of sides and timings of stored speeds."""

OURS = "linbench"
"""The name of linbench's own side in a result; all other sides are peers."""

REPLAYED, AS_CALLED = "replayed", "as_called"
"""The two timings of a call: replayed from a CUDA graph, so that the device alone is timed; and as a caller
waits for it."""

TIMING_LABELS = {REPLAYED: "on the device alone", AS_CALLED: "as called"}
"""The timings in words."""
