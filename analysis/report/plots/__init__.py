"""The figures of a report, a file per kind; style.py is the look of all."""
