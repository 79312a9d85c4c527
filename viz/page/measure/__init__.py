"""Many examples measured."""
