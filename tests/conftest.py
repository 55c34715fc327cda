"""Shared by all tests: one thread, no hub, and a cache folder that is thrown away."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
