"""The pictures of one run."""
