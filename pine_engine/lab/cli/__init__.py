"""Subcommands of the lab, by name in `pine_engine.lab.SUBCOMMANDS`."""
