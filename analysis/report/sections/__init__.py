"""The tables and sentences of a report, a file per section."""
