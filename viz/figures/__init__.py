"""Figures, one per file: records of the engine in, plotly figures out."""
