"""API endpoints for scripts and assistants: arguments, computation and results."""
