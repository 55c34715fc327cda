"""The commands: train, evaluate, generate, study, baseline, export."""
