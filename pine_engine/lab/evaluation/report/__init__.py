"""Tables and sentences of several measured runs, next to the numbers of the paper."""
