"""Sequence-mixing layers, one file for each variant, and the backbone around them."""
