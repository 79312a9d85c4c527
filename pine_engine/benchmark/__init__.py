"""Measurements of speed, memory and profiles on this machine."""
