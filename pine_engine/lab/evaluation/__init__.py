"""Evaluation of tasks: examples in several document orders under every method, as records and estimates."""
