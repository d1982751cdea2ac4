"""The named systems that come with linbench: every YAML file in this folder is one."""
