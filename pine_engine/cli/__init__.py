"""Command line, related subcommands in one file."""
