"""Python files that users bring: which file an import means, what it imports in turn, and modules made of
exactly what was read."""
