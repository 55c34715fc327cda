"""The run format: what is written is read back, and nothing damaged, half-written or foreign passes for a run."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.errors import DataError, Exit, Parser, UsageError, finite, out_folder, run_command
from analysis.runlog import writing as run_writer
from analysis.runlog.addresses import find_runs_folder, resolve
from analysis.runlog.manifest import Evaluation, Manifest, Training, settings_hash
from analysis.runlog.reading import Run, conform, read_manifest, rows_to_table
from analysis.runlog.schema import KEY, NULLABLE, TABLES
from analysis.runlog.writing import RunWriter, write_atomic
from tests.analysis.runs import prompts_of, write_run

# --- round trip ------------------------------------------------------------------------------------------------

_INTEGERS = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}


def values_of(kind):
    if kind in _INTEGERS:
        return st.integers(-(2 ** _INTEGERS[kind]), 2 ** _INTEGERS[kind] - 1)
    if pa.types.is_list(kind):
        return st.lists(values_of(kind.value_type), max_size=3)
    if pa.types.is_floating(kind):
        return st.floats(width=32 if kind == pa.float32() else 64, allow_nan=False)
    return st.booleans() if kind == pa.bool_() else st.text(max_size=8)


def rows_of(name):
    nullable = NULLABLE.get(name, frozenset())
    columns = {f.name: values_of(f.type) | st.none() if f.name in nullable else values_of(f.type) for f in TABLES[name]}
    return st.lists(st.fixed_dictionaries(columns), max_size=4)


@pytest.mark.parametrize("name", sorted(TABLES))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_table_comes_back_as_written(tmp_path_factory, name, data):
    rows, more = data.draw(rows_of(name)), data.draw(rows_of(name))
    folder = tmp_path_factory.mktemp("run")
    writer = RunWriter(folder, Manifest(name="r", created_by="tests"))
    writer.append(name, rows)
    writer.append(name, more)
    writer.finish()
    table = Run.open(folder).read(name)
    assert table.schema == TABLES[name]
    assert table.to_pylist() == rows + more


def test_parts_of_a_table_are_read_together_and_replaced_one_by_one(tmp_path):
    def row(step):
        return [{"step": step}]

    writer = RunWriter(tmp_path, Manifest(name="r", created_by="tests"))
    writer.append("history", row(1), part="second")
    writer.append("history", row(0), part="first")
    writer.finish()
    assert Run.open(tmp_path).read("history", ["step"]).to_pylist() == [{"step": 0}, {"step": 1}]
    again = RunWriter.resume(tmp_path)
    again.append("history", row(7), part="second")
    again.commit()
    assert [p.rows for p in again.manifest.tables["history"]] == [1, 1]
    assert Run.open(tmp_path, allow_incomplete=True).read("history")["step"].to_pylist() == [0, 7]


def test_rows_are_invisible_until_committed(tmp_path):
    writer = RunWriter(tmp_path, Manifest(name="r", created_by="tests"))
    writer.save()
    writer.append("history", [{"step": 0}])
    run = Run.open(tmp_path, allow_incomplete=True)
    assert not run.has("history")
    assert run.tables() == []
    writer.finish()
    assert Run.open(tmp_path).tables() == ["history"]
    assert not list(tmp_path.rglob("*.tmp"))


def test_few_rows_at_a_time_are_gathered_into_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(run_writer, "ROW_GROUP", 4)
    writer = RunWriter(tmp_path, Manifest(name="r", created_by="tests"))
    for step in range(6):
        writer.append("history", [{"step": step}])
    writer.append("history", {"step": list(range(6, 16))})  # more than enough already
    writer.finish()
    metadata = pq.read_metadata(tmp_path / "history.parquet")
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [4, 12]
    assert Run.open(tmp_path).read("history")["step"].to_pylist() == list(range(16))


def test_columns_and_rows_are_two_ways_to_say_the_same():
    rows = [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}]
    assert rows_to_table("history", rows).equals(rows_to_table("history", {"step": [1, 2], "loss": [0.5, 0.25]}))
    with pytest.raises(ValueError, match="tau"):
        rows_to_table("history", [{"step": 1, "tau": 3}])


# --- schema ----------------------------------------------------------------------------------------------------


def step_table(**columns):
    base = rows_to_table("history", {"step": [0, 1, 2]})
    for name, values in columns.items():
        base = base.set_column(base.schema.get_field_index(name), name, values)
    return base


def test_nan_in_an_integer_column_is_a_null():
    table = conform(step_table(examples=pa.array([4.0, math.nan, 12.0])), "history", "here")
    assert table["examples"].to_pylist() == [4, None, 12]


def test_fractions_in_an_integer_column_are_refused():
    with pytest.raises(DataError, match=r"here: .*'examples'.*double.*int64"):
        conform(step_table(examples=pa.array([4.5, 1.0, 12.0])), "history", "here")


def test_nulls_where_none_may_be_are_refused():
    with pytest.raises(DataError, match=r"here: .*'step'.* 1 null"):
        conform(step_table(step=pa.array([0, None, 2])), "history", "here")


def test_string_layouts_of_other_writers_are_normalised():
    expected = ["aa", "bb", "aa"]
    for foreign in (pa.array(expected).dictionary_encode(), pa.array(expected, pa.large_string())):
        table = conform(step_table(data_hash=foreign), "history", "here")
        assert table.schema == TABLES["history"]
        assert table["data_hash"].to_pylist() == expected


def test_wider_integers_are_taken_if_they_fit():
    assert conform(step_table(step=pa.array([0, 1, 2], pa.int64())), "history", "x")["step"].type == pa.int32()
    with pytest.raises(DataError, match="'step'"):
        conform(step_table(step=pa.array([0, 1, 2**40], pa.int64())), "history", "x")


def test_ids_may_be_integers_but_never_floats():
    assert conform(step_table(data_hash=pa.array([1, 2**60, 3])), "history", "x")["data_hash"][1].as_py() == str(2**60)
    with pytest.raises(DataError, match=r"x: .*'data_hash'.*double.*string"):
        conform(step_table(data_hash=pa.array([1.0, 2.0, 3.0])), "history", "x")


def test_other_columns_are_dropped_and_missing_ones_named():
    table = step_table()
    assert conform(table.append_column("extra", pa.array([1, 2, 3])), "history", "x").schema == TABLES["history"]
    with pytest.raises(DataError, match=r"x: .*'loss'"):
        conform(table.drop_columns("loss"), "history", "x")


def test_the_key_has_no_nulls_anywhere():
    for name, nullable in NULLABLE.items():
        assert "eval_id" not in TABLES[name].names or not nullable & set(KEY), name
        assert nullable <= set(TABLES[name].names), name


# --- damage ----------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "a", prompts_of([1, 2, 3]), gates=False)


def test_truncated_parquet_is_named(folder):
    (part,) = Run.open(folder).manifest.tables["acceptance"]
    path = folder / part.file
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=rf"{part.file}: "):
        Run.open(folder)


def test_damage_in_the_middle_is_found_on_reading(folder):
    (part,) = Run.open(folder).manifest.tables["acceptance"]
    data = bytearray((folder / part.file).read_bytes())
    data[4:400] = bytes(396)
    (folder / part.file).write_bytes(data)
    with pytest.raises(DataError, match="acceptance"):
        Run.open(folder).read("acceptance")


def test_a_missing_part_is_named(folder):
    (part,) = Run.open(folder).manifest.tables["prompts"]
    (folder / part.file).unlink()
    with pytest.raises(DataError, match=rf"{part.file}: .*run.json"):
        Run.open(folder)


def test_rows_that_the_manifest_does_not_list_are_noticed(folder):
    (part,) = Run.open(folder).manifest.tables["history"]
    pq.write_table(pq.read_table(folder / part.file).slice(0, 10), folder / part.file)
    with pytest.raises(DataError, match=r"10 rows.*run\.json.* 60"):
        Run.open(folder)


@pytest.mark.parametrize("version", [0, 3, True, None, "1"])
def test_another_schema_version_is_refused(folder, version):
    data = json.loads((folder / "run.json").read_text())
    data["schema_version"] = version
    (folder / "run.json").write_text(json.dumps(data))
    with pytest.raises(DataError, match=r"schema_version"):
        Run.open(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "\ufeff{}", '"run"'])
def test_a_damaged_manifest_is_one_line(folder, text):
    (folder / "run.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"run\.json"):
        Run.open(folder)


def test_a_wrong_field_of_the_manifest_is_named(folder):
    data = json.loads((folder / "run.json").read_text())
    data["training"]["steps"] = "many"
    (folder / "run.json").write_text(json.dumps(data))
    with pytest.raises(DataError, match=r"'training\.steps'"):
        Run.open(folder)


def test_unknown_fields_survive_a_resave(folder):
    data = json.loads((folder / "run.json").read_text())
    data["future"] = {"x": 1}
    (folder / "run.json").write_text(json.dumps(data))
    RunWriter.resume(folder).save()
    assert json.loads((folder / "run.json").read_text())["future"] == {"x": 1}


def test_an_unfinished_run_is_refused_unless_asked_for(tmp_path):
    def unfinished(manifest):
        manifest.training.status = "running"

    folder = write_run(tmp_path / "a", prompts_of([1]), change=unfinished)
    with pytest.raises(DataError, match="running"):
        Run.open(folder)
    assert Run.open(folder, allow_incomplete=True).manifest.status == "running"


def test_status_follows_the_stages():
    def evaluation(status):
        return Evaluation(status=status, protocol="prefix", settings={}, prompt_set_sha256="", prompts=0, block_size=8)

    trained = Training(status="complete", settings={}, settings_sha256="", seeds={})
    manifest = Manifest(name="r", created_by="tests", training=trained)
    assert manifest.overall_status() == "complete"
    manifest.evaluations["x"] = evaluation("running")
    assert manifest.overall_status() == "running"
    manifest.evaluations["y"] = evaluation("failed")
    assert manifest.overall_status() == "failed"


# --- addresses -------------------------------------------------------------------------------------------------


def test_a_run_behind_an_fsspec_address(folder):
    memory = fsspec.filesystem("memory")
    memory.put(str(folder), "/lab/a", recursive=True)
    try:
        run = Run.open("memory://lab/a")
        assert run.name == "a"
        assert run.read("acceptance").equals(Run.open(folder).read("acceptance"))
        with pytest.raises(DataError, match=r"run\.json"):
            Run.open("memory://lab/b")
    finally:
        memory.rm("/lab", recursive=True)


def test_a_name_is_looked_up_in_the_nearest_runs_folder(tmp_path, monkeypatch):
    write_run(tmp_path / "runs" / "mine", prompts_of([1]))
    deep = tmp_path / "x" / "y"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert find_runs_folder() == tmp_path / "runs"
    assert Run.open("mine").name == "mine"
    with pytest.raises(DataError, match=r"'other'.* mine"):
        resolve("other")


def test_a_name_without_a_runs_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"runs/"):
        resolve("mine")
    with pytest.raises(DataError, match=r"run\.json"):
        read_manifest(str(tmp_path))


# --- writing and exit codes ------------------------------------------------------------------------------------


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "f"
    write_atomic(path, "old")
    with pytest.raises(TypeError):
        write_atomic(path, 7)  # type: ignore[arg-type]
    assert path.read_text() == "old"


def test_equal_settings_have_equal_hashes():
    assert settings_hash({"a": 1, "b": [2]}) == settings_hash({"b": [2], "a": 1}) != settings_hash({"a": 1, "b": [3]})
    with pytest.raises(ValueError, match="JSON"):
        settings_hash({"a": math.nan})


def test_equal_manifests_are_equal_bytes(folder):
    manifest = read_manifest(str(folder))
    assert (
        manifest.to_json()
        == (folder / "run.json").read_text()
        == Manifest.model_validate(manifest.model_dump()).to_json()
    )


def raising(error):
    def main(argv=None):
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (DataError("two\nlines"), Exit.DATA, "draftlab: two lines\n"),
        (UsageError("no"), Exit.USAGE, "draftlab: no\n"),
        (KeyboardInterrupt(), Exit.INTERRUPTED, "draftlab: interrupted\n"),
        (ZeroDivisionError("x"), Exit.INTERNAL, "draftlab: internal error: ZeroDivisionError: x"),
    ],
)
def test_a_failure_is_one_line_and_a_code(capsys, error, code, text):
    assert run_command(raising(error)) == code
    assert capsys.readouterr().err.startswith(text)


def test_only_a_command_that_resumes_says_so(capsys):
    assert run_command(raising(KeyboardInterrupt()), resumes=True) == Exit.INTERRUPTED
    assert capsys.readouterr().err.startswith("draftlab: interrupted; ")


@pytest.mark.parametrize("argv", [["--number", "nan"], ["--number", "inf"], ["--number", "x"], ["--out", ""]])
def test_arguments_that_are_no_numbers_and_folders_without_a_name(capsys, argv):
    parser = Parser(prog="x")
    parser.add_argument("--number", type=finite)
    parser.add_argument("--out", type=out_folder)
    assert vars(parser.parse_args(["--number", "1e-3", "--out", "a b"])) == {"number": 0.001, "out": Path("a b")}
    with pytest.raises(SystemExit) as stop:
        parser.parse_args(argv)
    assert stop.value.code == Exit.USAGE
    assert f"argument {argv[0]}: " in capsys.readouterr().err


def test_usage_errors_have_their_own_code(capsys):
    with pytest.raises(SystemExit) as stop:
        Parser(prog="x").parse_args(["--nonsense"])
    assert stop.value.code == Exit.USAGE
    assert "unrecognized arguments" in capsys.readouterr().err


def test_an_address_that_no_library_is_installed_for_says_what_to_install():
    code = (
        "import sys; sys.modules['s3fs'] = None; from analysis.runlog.reading import Run; Run.open('s3://bucket/run')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith("(for s3://: pip install 'draftlab[remote]')")
    with pytest.raises(DataError, match="gopher://host/run: "):
        Run.open("gopher://host/run")
