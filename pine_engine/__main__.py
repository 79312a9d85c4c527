"""`python -m pine_engine SUBCOMMAND`."""

from pine_engine.cli.main import main

main()
