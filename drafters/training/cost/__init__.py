"""What a training costs, computed from shapes: memory, operations, time."""
