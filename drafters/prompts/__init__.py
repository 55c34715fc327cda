"""Prompts from generator families, files and the hub, each with its cluster."""
