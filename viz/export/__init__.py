"""Pages that stand alone: downloaded runs and reports."""
