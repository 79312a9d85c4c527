"""Generation of molecules from six properties, and metrics of the generated molecules."""
