"""The commands: parse, call, render. Each is also ``python -m analysis.<name>``."""
