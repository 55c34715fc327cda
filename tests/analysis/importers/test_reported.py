"""The inputs that were reported, where they are at hand: each gives what it should, or is refused in one line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from analysis.commands.importers import main
from analysis.errors import run_command

SHARED = Path(__file__).parents[4] / "shared" / "cases" / "logs"
ARM = ["--map", "steps=steps_n", "--map", "tokens=tok", "--map", "prompt_id=q"]


@pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/cases")
@pytest.mark.parametrize(
    ("files", "told"),
    [
        (["arms/oak.csv", *ARM], ["pooled 4.0000", "pooled 1.2500"]),
        (["arms/elm.csv", *ARM], None),
        (["nodraft/oak.log"], ["1.2500"]),
        (["nodraft/elm.log"], ["1.9231"]),
        (["lineend/oak.log"], ["1.5000, 200 steps"]),
        (["lineend/oak_avg.log"], ["1.5000, 200 steps"]),
        (["lineend/elm.log"], ["1.0720, 98,680 steps"]),
        (["counters/oak.json"], ["2.5000"]),
        (["counters/elm.json"], ["3.2000"]),
        (["counters/ash.jsonl"], ["names a drafter"]),
        (["nan/elm.log"], ["2.0000, 100 steps"]),
        (["nan/oak.log"], None),
        (["v0/oak.log"], ["2.0000, 100 steps"]),
        (["printed/oak.txt"], ["2.4100, 1,000 steps"]),
        (["printed/elm.txt"], ["2.4100, 1,000 steps"]),
        (["mixed/two_targets.json"], ["target T-8B", "target T-4B"]),
        (["mixed/idxs_zero.jsonl"], ["no response has a step"]),
        (["mixed/llamacpp_passes.log"], ["1.2500"]),
        (["rounds/oak.json"], ["pooled 4.0000"]),
        (["mixed/per_sample.json"], ["pooled 2.5000", "3 responses"]),
        (["mixed/identity.csv"], None),
        (["mixed/noid_a.jsonl", "mixed/noid_b.jsonl"], ["6 responses"]),
        (["mixed/request_1.json", "mixed/request_2.json", "mixed/request_3.json"], ["3 responses"]),
        (["mixed/mostly_bad.jsonl"], None),
        (["mixed/specbundle.json"], ["arm: T-8B/org/new (target T-8B)"]),
        (["mixed/no_turns.jsonl"], None),
        (["mixed/sglang_bench.jsonl"], ["format: SGLang"]),
        (["mixed/reruns.jsonl"], ["WARNING"]),
        (["place/plain.jsonl"], ["plain decoding", "50.0 tokens/s"]),
        (["names/a.jsonl"], ["mean over prompts 2.4996"]),
    ],
)
def test_the_cases_that_were_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], files: Sequence[str], told: list[str] | None
) -> None:
    arguments = [str(SHARED / name) if "/" in name else name for name in files]
    code = run_command(main, [*arguments, "--out", str(tmp_path / "out")])
    out = capsys.readouterr()
    assert code == (65 if told is None else 0) and out.err.count("\n") == (told is None)
    for text in told or ():
        assert text in out.out
