"""The choice of a model: which are offered, and what is said of each."""
