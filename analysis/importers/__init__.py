"""Logs of other tools as runs: recognised by content, checked against their own sums, counted in one way."""
