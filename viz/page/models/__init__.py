"""The choice of models."""
