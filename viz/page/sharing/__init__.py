"""Links and files that carry a run away."""
