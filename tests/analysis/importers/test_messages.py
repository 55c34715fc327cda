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
        ("[2026-10-06 11:00:59 TP0] server is up\n", "no log that is known"),
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
    assert str(error.value).startswith(f"{address}: no log that is known")
    shutil.rmtree(tmp_path / "t")
