"""Many examples measured: what is chosen, computed, tabulated and handed over."""
