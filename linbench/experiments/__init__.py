"""From names and settings to cells and their identity."""
