"""What a user is told of a file that cannot be used: what it is, what is missing, and what to do."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path

import pytest

from analysis.errors import DataError, UsageError
from analysis.importers.direct import open_references
from analysis.importers.registry import read_file
from analysis.runlog.load import load
from tests.analysis.importers import logs


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[2026-10-06 11:00:59 TP0] server is up\n", "text of which no line states acceptance"),
        ("INFO Speculative metrics: rate: 0.5, System efficiency: 0.4\n", "taken as log, but no row could be used"),
        ("{\n  broken", "looks like JSON, but is damaged or cut off"),
        ('[{"prompt_id": 1},\n]', "looks like JSON, but is damaged or cut off"),
        (json.dumps(logs.VLLM, indent=2) * 2, "several JSON values one after the other, each over several lines"),
        ("id,n\n1,2\n", "it has id, n; of a plain table are missing: prompt_id, accepted or emitted"),
        ("prompt_id,steps\n1,2\n", "it has prompt_id, steps; of a plain table are missing: tokens or output_tokens"),
        ('{"task": 1, "tau": 3.2}\n', "it has task, tau; of a plain table are missing: prompt_id"),
    ],
)
def test_a_file_that_is_not_known(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(DataError) as error:
        read_file(logs.write(tmp_path, "log", text))
    assert told in str(error.value) and "\n" not in str(error.value)


_V0 = "INFO Speculative metrics: Draft acceptance rate: 0.5, System efficiency: 0.5, Number of speculative tokens: 3\n"
#: Files that are no plain table: what each is, as a word of its message, and the field or file that is missing.
_NO_TABLES = {
    "blank": ("\n \n", "blank lines", ""),
    "binary": (b"\x40\x00\x00\x00\x00\x00\x00\x00{}", "binary", "Parquet"),
    "gzip": (b"\x1f\x8bxxxx", "compressed file is damaged", "again"),
    "markdown": ("| a | b |\n|---|---|\n| 1 | 2 |\n", "Markdown", "CSV"),
    "yaml": ("a: 1\nb:\n  - 2\n", "text", "prompt_id"),
    "orient values": ("[[1, 2], [3, 4]]", "a JSON list without objects", "objects"),
    "nested": ({"gsm8k": {"score": 2.0}, "math": {"score": 3.0}}, "an object with the fields gsm8k, math", "rows="),
    "vLLM log": ("INFO Avg generation throughput: 1 tokens/s\n", "vLLM's server", "SpecDecoding metrics"),
    "vLLM V0": (_V0, "taken as log", "no Number of emitted tokens"),
    "vLLM metrics": ('vllm:num_requests{engine="0"} 1.0\n', "metrics of a server", "spec_decode_num_drafts"),
    "get_metrics": ("Gauge(name='vllm:n', labels={}, value=0)\n", "get_metrics()", "spec_decode_num_drafts"),
    "vLLM drafts": ({**logs.VLLM, "spec_decode_num_drafts": None}, "taken as vllm", "without spec_decode_num_drafts:"),
    "llama.cpp log": ("eval time =  100.0 ms / 50 runs\n", "llama.cpp", "draft acceptance"),
    "llama.cpp JSON": ({"content": "x", "timings": {"draft_n": 10}}, "answers of a server", "predicted_n"),
    "SGLang answer": ({"text": "a", "meta_info": {"completion_tokens": 9}}, "SGLang", "spec_verify_ct"),
    "SGLang bench": ({"backend": "sglang", "request_rate": 4}, "SGLang's bench_serving", "accept_length"),
    "mlx-vlm": ({"text": "x", "generation_tokens": 9, "generation_tps": 5.0}, "MLX", "draft_n"),
    "dflash-mlx": ({"tokens_per_second": 5.0, "acceptance_ratio": 0.5}, "dflash-mlx", "steps"),
    "OpenAI": ({"id": "c", "object": "chat.completion", "choices": [], "usage": {}}, "OpenAI", "counts of drafts"),
    "TGI": ({"generated_text": "x", "details": {}}, "text-generation-inference", "counts of drafts"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(_NO_TABLES))
def test_a_file_that_is_no_table_is_called_what_it_is(tmp_path: Path, name: str) -> None:
    data, what, missing = _NO_TABLES[name]
    with pytest.raises(DataError) as error:
        read_file(logs.write(tmp_path, "log", json.dumps(data) if isinstance(data, dict) else data))
    told = str(error.value)
    assert what in told and missing in told and "plain table" not in told and "\n" not in told


def test_standard_input_and_pipes_are_refused_before_they_are_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="standard input"):
        read_file("-")
    with pytest.raises(UsageError, match="standard input"):
        open_references(["-"], tmp_path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(b""), daemon=True)  # opening must not wait for it
    writer.start()
    with pytest.raises(UsageError, match="pipe: a pipe or device"):
        open_references([str(pipe)], tmp_path)
    pipe.open("rb").close()
    writer.join(5)


def test_a_folder_of_logs_says_what_to_do_with_them(tmp_path: Path) -> None:
    logs.write(tmp_path, "answers.jsonl")
    with pytest.raises(UsageError, match="give the files in it"):
        read_file(tmp_path)
    with pytest.raises(UsageError, match=r"no run.json, so no run; .* python -m analysis.importers "):
        open_references([str(tmp_path)], tmp_path / "t")


def test_what_is_wrong_with_an_imported_log_is_told_of_the_users_file(tmp_path: Path) -> None:
    path = str(logs.write(tmp_path, "answers.jsonl"))
    (run,) = open_references([path], tmp_path / "t")
    with pytest.raises(DataError) as error:
        load(run, "prefix")
    assert str(error.value).startswith(f"{path}: no prompt was evaluated")


def test_what_is_wrong_with_a_fetched_log_is_told_of_its_address(tmp_path: Path) -> None:
    address = f"file://{logs.write(tmp_path, 'x.txt', 'no log')}"
    (tmp_path / "t").mkdir()
    with pytest.raises(DataError) as error:
        open_references([address], tmp_path / "t")
    assert str(error.value).startswith(f"{address}: text of which no line")
    shutil.rmtree(tmp_path / "t")
