"""Rows: files, tables and JSON of other people, as documents and fields of this project."""
