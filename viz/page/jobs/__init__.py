"""Jobs: clients, queue, loaded models, Stop, limits and log."""
