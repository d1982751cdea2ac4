"""Python files of users: finding the file of an import, its imports in turn, and loading exactly what was read."""
