"""`python -m pine_engine VERB`."""

from pine_engine.cli import main

main()
