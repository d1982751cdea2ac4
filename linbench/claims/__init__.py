"""What the literature says, as rules over what was measured."""
