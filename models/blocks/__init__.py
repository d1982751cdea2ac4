"""Parts that several variants share."""
