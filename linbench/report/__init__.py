"""Tables and figures: pure functions of stored results."""
