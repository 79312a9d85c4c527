"""Tutorial of the page and the paper's running example."""
