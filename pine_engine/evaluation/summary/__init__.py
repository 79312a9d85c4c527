"""From the records of a measurement to numbers with intervals."""
