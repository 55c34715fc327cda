"""Serving: a small OpenAI-compatible server over our decoder, and trials of any such server."""
