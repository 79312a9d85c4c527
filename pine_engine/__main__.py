"""`python -m pine_engine VERB`."""

from pine_engine.cli.main import main

main()
