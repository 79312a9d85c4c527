"""Tables and sentences of several measured runs, beside the numbers of the paper."""
