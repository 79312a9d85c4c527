"""The pictures of one run: what is chosen in them, and how each is drawn from its trace."""
