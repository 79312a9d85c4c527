"""Models: found, judged from their configuration, and loaded."""
