"""Owner of runs: queue, shared computations, decode steps in one batch, and the thread that computes."""
