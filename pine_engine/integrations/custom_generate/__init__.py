"""Folder with the name that transformers expects."""
