"""Logs of every format, damaged in ways whose right outcome is known: ``python -m benchmarks.fuzz_importers [N]``.

A format makes a sound log with a known value. A mutation declares what is right: the same value; the value without one
record, and that record counted as a problem; steps that are not known; or refusal in one line. Anything else (another
value, a traceback, a record lost without a word) is a fault. N logs in all (default 100,000) are spread over all pairs
of format and mutation.

* ``declared``: what a mutation declares, and the judge of what came out
* ``formats``, ``documents``, ``tables``: logs of one record after another, by kind of file; ``damage``: their mutations
* ``lines``: logs of servers' lines; ``totals``: files of one total
* ``everything``: all of them, the run and its page
"""
