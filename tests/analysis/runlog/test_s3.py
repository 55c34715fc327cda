"""Runs and logs at s3:// addresses, on a local server that speaks S3."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.commands.check import check
from analysis.commands.compare import main
from analysis.comparison.pairwise import compare_runs
from analysis.errors import DataError, run_command
from analysis.report.result import to_json
from analysis.runlog.load import load
from analysis.runlog.reading import Run
from analysis.runlog.writing import RunWriter
from tests.analysis.importers import logs
from tests.analysis.runs import study

s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed (extra 'dev' has it)")
server = pytest.importorskip("moto.server", reason="moto's server is not installed (extra 'dev' has it)")


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    """A filesystem with a bucket ``bucket``; the environment says where it is, as a user's would."""
    thread = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    thread.start()
    host, port = thread.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        s3fs.S3FileSystem.clear_instance_cache()
        filesystem = s3fs.S3FileSystem()
        filesystem.mkdir("bucket")
        yield filesystem
        s3fs.S3FileSystem.clear_instance_cache()
    thread.stop()


def put(s3: Any, folder: Path) -> str:
    s3.put(str(folder), f"bucket/runs/{folder.name}", recursive=True)
    return f"s3://bucket/runs/{folder.name}"


def test_runs_at_addresses_give_what_local_ones_give(s3: Any, tmp_path: Path) -> None:
    local = study(tmp_path, protocol="generate")
    remote = [put(s3, folder) for folder in local]
    assert to_json(compare_runs(*remote)) == to_json(compare_runs(*local))
    assert to_json(compare_runs(local[0], remote[1] + "/")) == to_json(compare_runs(*local))
    assert check(Run.open(remote[0])).faults == ()


def test_a_run_of_many_parts_at_an_address_is_read_as_one(s3: Any, tmp_path: Path) -> None:
    folder = study(tmp_path, protocol="generate")[0]
    whole = Run.open(folder)
    writer = RunWriter(tmp_path / "parts", whole.manifest.model_copy(update={"tables": {}}))
    for name in whole.tables():
        table = whole.read(name)
        for rank in range(3):
            start, stop = rank * len(table) // 3, (rank + 1) * len(table) // 3
            writer.append(name, table.slice(start, stop - start), part=f"rank{rank}")
    writer.commit()
    run = Run.open(put(s3, tmp_path / "parts"))
    assert run.files("acceptance") == [f"bucket/runs/parts/acceptance.parquet/rank{rank}.parquet" for rank in range(3)]
    assert check(run).faults == ()
    np.testing.assert_array_equal(load(run, "generate").counts.survived, load(whole, "generate").counts.survived)


def test_log_files_at_addresses_are_imported(s3: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("answers.jsonl", "trace.jsonl"):
        s3.pipe_file(f"bucket/{name}", logs.ALL[name][0])
    answers = "s3://bucket/answers.jsonl"
    assert run_command(main, [answers, answers, "--out", str(tmp_path / "one")]) == 0
    assert "identical" in capsys.readouterr().out
    one = "s3://bucket/trace.jsonl#C2"
    assert run_command(main, [one, one, "--out", str(tmp_path / "two")]) == 0
    assert "identical" in capsys.readouterr().out


def test_a_web_server_without_ranges_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It answers for a folder too: a run is still taken for a run, not fetched as a log."""
    study(tmp_path / "runs", protocol="generate")
    handler = functools.partial(_Quiet, directory=str(tmp_path / "runs"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        run = f"http://127.0.0.1:{web.server_address[1]}/study-dflash"
        assert run_command(main, [run, run, "--out", str(tmp_path / "report")]) == 65
        web.shutdown()
    (error,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("draftlab:"))
    assert "range requests" in error and "internal error" not in error


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_what_is_not_there_is_one_line(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("s3://bucket/absent", "s3://no-such-bucket/run"):
        with pytest.raises(DataError, match=r"run\.json"):
            Run.open(address)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(DataError, match="credentials") as error:
        Run.open("s3://bucket/absent")
    assert "\n" not in str(error.value)
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(DataError, match="gopher"):
        Run.open("gopher://host/run")
