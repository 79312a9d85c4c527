"""Public data sets: download of pinned files and conversion to the schema of this project."""
