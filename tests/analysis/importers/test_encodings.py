"""Logs that are not UTF-8 are refused with the encoding to try; read with it, they give what the UTF-8 ones give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.commands import compare
from analysis.commands.importers import main
from analysis.errors import DataError, UsageError, run_command
from analysis.importers.collect import collect
from analysis.importers.encodings import known_encoding
from analysis.importers.registry import Options
from tests.analysis.importers import logs

TEXT = "".join(
    json.dumps({"question_id": f"\u00e9{i}", "acceptance_lengths": [1 + i % 3, 2]}, ensure_ascii=False) + "\n"
    for i in range(12)
)
TABLE = "prompt_id,accepted,steps\n" + "".join(f"\u00e9{i},{3 * i},{i}\n" for i in range(1, 13))


def lengths(path: Path, encoding: str | None = None) -> dict[str, int]:
    (run,) = collect([path], Options(encoding=encoding)).runs
    return {r.prompt_id: r.tokens for r in run.responses}


@pytest.mark.parametrize(
    ("name", "text"), [("log.jsonl", TEXT), ("log.json", f"[{TEXT.strip().replace(chr(10), ',')}]")]
)
@pytest.mark.parametrize(("encoding", "told"), [("latin-1", "cp1252"), ("utf-16-le", None), ("gb18030", "cp1252")])
def test_objects(tmp_path: Path, name: str, text: str, encoding: str, told: str | None) -> None:
    expected = lengths(logs.write(tmp_path, f"right-{name}", text))
    path = logs.write(tmp_path, name, text.encode(encoding))
    with pytest.raises(DataError, match=rf"--encoding {told}$" if told else "log"):
        collect([path])
    assert lengths(path, known_encoding(encoding)) == expected


def test_tables(tmp_path: Path) -> None:
    expected = lengths(logs.write(tmp_path, "right.csv", TABLE))
    path = logs.write(tmp_path, "log.csv", TABLE.encode("cp1252"))
    with pytest.raises(DataError, match=r"line 2 is not UTF-8 \(byte 0xE9 at 1\).*--encoding cp1252$"):
        collect([path])
    assert lengths(path, "cp1252") == expected


def test_a_named_encoding_is_for_files_that_are_not_utf_8(tmp_path: Path) -> None:
    path = logs.write(tmp_path, "log.csv", TABLE)
    assert lengths(path, "cp1252") == lengths(path)
    wrong = logs.write(tmp_path, "wrong.csv", TABLE.encode("latin-1"))
    with pytest.raises(DataError, match="not shift_jis, the encoding that was named"):
        collect([wrong], Options(encoding="shift_jis"))


def test_a_half_character_where_the_writer_stopped_is_a_line_cut_off(tmp_path: Path) -> None:
    cut = TEXT.encode() + b'{"question_id": "\xc3'
    found = collect([logs.write(tmp_path, "log.jsonl", cut)])
    assert len(found.runs[0].responses) == 12 and [p.kind for _, p in found.problems] == ["cut off"]


def test_half_a_character_before_a_line_end_is_no_cut(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 13 is not UTF-8"):
        collect([logs.write(tmp_path, "log.csv", TABLE.encode()[:-1] + b"\xe9\n")])


def test_noise_between_records_is_no_record(tmp_path: Path) -> None:
    found = collect([logs.write(tmp_path, "log.jsonl", TEXT.encode() + b"\xff\xfe\xfd\n")])
    assert len(found.runs[0].responses) == 12 and [p.kind for _, p in found.problems] == ["unrelated"]


@pytest.mark.parametrize("name", ["nonsense", "base64"])
def test_an_encoding_that_is_none(name: str) -> None:
    with pytest.raises(UsageError, match=f"--encoding {name}"):
        known_encoding(name)


def test_through_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = logs.write(tmp_path, "log.csv", TABLE.encode("cp1252")), tmp_path / "run"
    assert run_command(main, [str(path), "--out", str(out)]) == 65 and not out.exists()
    assert run_command(main, [str(path), "--out", str(out), "--encoding", "cp1252"]) == 0
    values = "prompt_id,latency\n" + "".join(f"\u00e9{i},{i}\n" for i in range(12))
    a, b = (logs.write(tmp_path, f"{side}.csv", values.encode(how)) for side, how in (("a", "cp1252"), ("b", "utf-8")))
    asked = [str(a), str(b), "--out", str(tmp_path / "report")]
    assert run_command(compare.main, asked) == 65
    assert run_command(compare.main, [*asked, "--encoding", "cp1252"]) == 0
    capsys.readouterr()
