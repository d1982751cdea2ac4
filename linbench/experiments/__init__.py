"""Cells and their identity, made of names and settings."""
