"""Links and files of a run."""
