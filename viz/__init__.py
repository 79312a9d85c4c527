"""Figures: plain data in, escaped HTML out. Imports neither torch nor pine_engine."""
