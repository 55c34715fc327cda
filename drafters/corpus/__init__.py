"""The target's answers and hidden states that a drafter trains on, in shards on disk."""
