"""Paired inference, numbers in and numbers out: one file per method or assumption; opens no run."""
