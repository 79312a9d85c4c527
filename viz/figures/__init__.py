"""Figures, one a file: plain data in, escaped HTML and SVG out."""
