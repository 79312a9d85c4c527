"""Exit statuses of the command line, beside 0."""

FAILED = 1
"""A check did not hold, something else came out, or records are missing."""

BAD_INPUT = 2

STOPPED = 130
"""By Ctrl-C, as shells have it."""
