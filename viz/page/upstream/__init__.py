"""What makes up for gradio until it does so itself."""
