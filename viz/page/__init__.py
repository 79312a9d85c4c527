"""The page: widgets and their callbacks, one part per module. The one package that imports gradio."""
