"""The run format: schema, manifest, reading and writing tables, steps as prompts, pairs of two runs."""
