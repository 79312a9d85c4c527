"""Figure and report of an evaluation."""
