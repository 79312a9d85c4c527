"""A loaded model's network, copied over the same weights and wired to our attention and arithmetic."""
