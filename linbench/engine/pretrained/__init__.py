"""Language models that are already trained, asked the questions of tasks in tokens of their own."""
