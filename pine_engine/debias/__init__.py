"""Wrappers around any method: permutation, PriDe, contextual calibration and routing."""
