"""Parts that several tasks share."""
