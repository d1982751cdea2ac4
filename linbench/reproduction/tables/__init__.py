"""Published tables, one YAML file each."""
