"""The table of methods, and what a method makes of one prompt: the attention plan."""
