"""Python files of users: finding imported files, following their imports, loading exactly what was read."""
