"""The table of methods, and the attention plan of a method for one prompt."""
