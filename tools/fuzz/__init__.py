"""Random invalid input for all entry points: `python -m tools.fuzz --inputs 10000 --seed 0`."""
