"""Public data sets: brought from where their makers keep them, and written in the schema of this project."""
