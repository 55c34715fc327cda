#!/usr/bin/env bash
# The first thing to run on a machine with a GPU: everything once, in under eight minutes (benchmarks/gpu_smoke.py).
#   benchmarks/gpu_smoke.sh [--out FOLDER]     on the GPU, with the embedded target
#   benchmarks/gpu_smoke.sh --fast             on the CPU too, in under two minutes
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
python="${PYTHON:-$root/.venv/bin/python}"
command -v "$python" >/dev/null || { echo "gpu_smoke.sh: no $python; run make test once, or set PYTHON" >&2; exit 64; }
PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" exec "$python" "$root/benchmarks/gpu_smoke.py" "$@"
