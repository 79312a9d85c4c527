"""The page: the only package that imports gradio, with one folder per part."""
