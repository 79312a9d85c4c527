"""Tab "Internals": figures of a finished run for one selection."""
