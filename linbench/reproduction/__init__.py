"""Tables that papers have published, beside our runs of the same cells."""
