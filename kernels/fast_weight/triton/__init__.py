"""A linear fast weight on a GPU: what keys write (`writes`) and what queries read (`reads`)."""
