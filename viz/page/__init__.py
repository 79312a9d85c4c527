"""The page, the one package that imports gradio: a folder a part; beside them, what puts parts together."""
