"""What is asked: one file per task."""
