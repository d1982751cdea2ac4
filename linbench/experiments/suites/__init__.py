"""The suites that come with linbench: every YAML file in this folder is one."""
