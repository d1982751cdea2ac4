"""Attention on a GPU: `gated`, of tokens in order, and `decoding`, of one more token over a cache."""
