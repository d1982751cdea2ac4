"""Attention on a GPU: `gated` for tokens in order, and `decoding` for one more token over a cache."""
