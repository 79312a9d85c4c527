"""Documents that need no server: downloaded runs and reports."""
