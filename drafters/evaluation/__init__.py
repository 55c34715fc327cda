"""Evaluations of a trained drafter: protocols, arms and gate controls, rows of the run log."""
