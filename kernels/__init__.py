"""How it is computed: one folder per recurrence family, each with a reference, a torch form and one door."""
