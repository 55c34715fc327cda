"""Speculative decoding: the loop, its cache, the acceptance rules."""
