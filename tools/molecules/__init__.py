"""Training of the shipped molecule model."""
