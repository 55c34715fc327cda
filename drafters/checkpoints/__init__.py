"""Drafters on disk: our folders and the published layouts, both ways."""
