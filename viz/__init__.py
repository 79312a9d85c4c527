"""Figures: plain data in, a plotly Figure or escaped HTML out. Imports neither torch nor pine_engine."""
