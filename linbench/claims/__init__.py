"""Claims of the literature, tested by rules on stored results."""
