"""Rendering of results: Markdown, JSON, figures, the terminal. Results know nothing of it."""
