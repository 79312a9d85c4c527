"""Bad input by the thousand: `python -m tests.fuzz --inputs 10000 --seed 0`."""
