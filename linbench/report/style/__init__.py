"""Colours, labels and layout that all figures share."""
