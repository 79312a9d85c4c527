"""Developer scripts, run from the root of the repository: `python -m tools.NAME`. No part of the package."""
