"""Wrappers around any method: permutation, PriDe, CalibraEval, contextual calibration and routing."""
