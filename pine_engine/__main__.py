"""`python -m pine_engine SUBCOMMAND`."""

import sys

try:
    from pine_engine.cli.main import main

    main()
except KeyboardInterrupt:  # during the imports
    sys.exit(130)
