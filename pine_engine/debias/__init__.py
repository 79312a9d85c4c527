"""Wrappers around any method: permutation, PriDe and contextual calibration."""
