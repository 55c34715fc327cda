"""Rows of files and hub data sets: every layout, and one clear line for everything that is wrong with one."""

import gzip
import json
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.errors import DataError, UsageError
from drafters.prompts.sources import PromptSource, load_prompts, remove_overlap

SHARED = Path(__file__).parents[3].parent / "shared" / "prompts"
real_files = pytest.mark.skipif(not SHARED.is_dir(), reason="no real prompt files beside the repository")


@pytest.fixture
def write(tmp_path):
    """Write rows as JSONL (or given bytes) and return the path."""

    def _write(content, name="mine.jsonl") -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            content if isinstance(content, bytes) else "\n".join(json.dumps(row) for row in content).encode()
        )
        return str(path)

    return _write


def one(path, **options):
    (prompt,) = load_prompts([PromptSource(source=path, **options)])
    return prompt


@pytest.mark.parametrize(
    ("row", "turns", "answers", "category"),
    [
        ({"question": "q", "answer": "a"}, ["q"], ["a"], None),  # GSM8K, Orca-Math
        ({"problem": "q", "solution": "long", "answer": "a", "subject": "Algebra"}, ["q"], ["long"], "Algebra"),
        ({"problem": "q", "answer": 204}, ["q"], ["204"], None),  # AIME
        ({"ID": 1, "Problem": "q", "Answer": 204.0}, ["q"], ["204"], None),  # AIME, as others write it
        ({"text": "q", "code": "c", "test_list": ["t"], "task_id": 1}, ["q"], ["c"], None),  # MBPP
        ({"prompt": "q", "code": "c", "task_id": 1}, ["q"], ["c"], None),  # MBPP, sanitized
        ({"task_id": "H/0", "prompt": "def f():", "entry_point": "f"}, ["def f():"], [], None),  # HumanEval
        ({"Body": "A has 1", "Question": "q?", "Answer": 145.0, "Type": "Sub"}, ["A has 1. q?"], ["145"], "Sub"),
        ({"Body": "A has 1.", "Question": "q?", "Answer": 0.5}, ["A has 1. q?"], ["0.5"], None),
        ({"turns": ["q1", "q2"], "category": "math", "question_id": 1}, ["q1", "q2"], [], "math"),
        ({"turns": ["q1", "q2"], "reference": ["a1", "a2"]}, ["q1", "q2"], ["a1", "a2"], None),
        ({"turns": ["q1", "q2"], "reference": ["a1"]}, ["q1", "q2"], [], None),  # not one a turn
        ({"turns": ["q1"], "reference": [["a1", "or a2"]]}, ["q1"], [], None),  # several for a turn
        ({"query": "q", "response": "a", "type": "GSM_Rephrased"}, ["q"], ["a"], "GSM_Rephrased"),  # MetaMathQA
    ],
)
def test_layouts(write, row, turns, answers, category):
    prompt = one(write([row]))
    assert (list(prompt.turns), list(prompt.answers), prompt.category) == (turns, answers, category)
    assert prompt.dataset == "mine"


def test_every_column_of_a_layout_is_looked_for_in_all_rows(write):
    """The first row may lack an optional column: augmented data must not lose its clusters by it."""
    rows = [{"question": "q", "answer": "a"}, {"question": "q'", "answer": "a", "original_question": "Q"}]
    first, second = load_prompts([write(rows)])
    assert second.cluster_id == first.cluster_id


def test_messages_keep_system_turns_and_given_answers(write):
    def chat(*pairs):
        return {"messages": [{"role": role, "content": content} for role, content in pairs]}

    full = chat(("system", "s"), ("user", "q1"), ("assistant", "a1"), ("user", "q2"), ("assistant", "a2"))
    prompt = one(write([full]))
    assert (prompt.system, prompt.turns, prompt.answers) == ("s", ("q1", "q2"), ("a1", "a2"))
    open_ended = chat(("user", "q1"), ("assistant", "a1"), ("user", "q2"))
    assert one(write([open_ended])).answers == ()
    for bad, message in [
        (chat(("assistant", "a")), "message 1 has role 'assistant' out of turn"),
        (chat(("user", "q"), ("user", "q")), "message 2 has role 'user' out of turn"),
        (chat(("user", "q"), ("tool", "t")), "message 2 has role 'tool'"),
        (chat(("user", None)), "message 1 has no text"),
        (chat(), "empty"),
        ({"messages": "hello"}, "must be a list"),
    ]:
        with pytest.raises(DataError, match=message):
            load_prompts([write([bad])])


def test_fields_map_unknown_columns_and_override_known_ones(write):
    odd = write([{"id": 1, "my_col": "q", "out": "a", "src": "Q", "kind": "k"}])
    fields = {"question": "my_col", "answer": "out", "original_question": "src", "category": "kind"}
    prompt = one(odd, fields=fields)
    assert (prompt.turns, prompt.answers, prompt.category) == (("q",), ("a",), "k")
    assert prompt.cluster_id == one(write([{"question": "Q", "answer": "-"}], "plain.jsonl")).cluster_id
    known = write([{"question": "q", "answer": "a", "out": "b"}], "known.jsonl")
    assert one(known, fields={"answer": "out"}).answers == ("b",)
    with pytest.raises(DataError, match=r"columns id, my_col, out, src, kind;.*fields=\{question: my_col\}"):
        load_prompts([odd])
    with pytest.raises(DataError, match="column 'absent', but the columns are id, my_col"):
        one(odd, fields={"question": "absent"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"question": "q", "answer": "a"}\n\n{"question": "q2", \n', r"mine.jsonl:3: not JSON"),
        (b'{"question": "q", "answer": "a"}\n[1]\n', r"mine.jsonl:2: a row must be a JSON object.*not list"),
        (b'[{"question": "q", "answer": "a"}, 3]', r"mine.jsonl, row 2: a row must be"),
        (b'[{"question": "q", "answer": "a"},', r"mine.jsonl: not JSON"),
        (b'{"question": "q", "answer": "a"}\n{"question": "\xff"}', r"mine.jsonl:2: not UTF-8 \(byte 0xff\)"),
        (b'{"question": "q", "answer": "a"}\n{"question": " ", "answer": "a"}', r"mine.jsonl:2: the prompt is empty"),
        (b'{"question": "q", "answer": "a"}\n{"answer": "a"}', r"mine.jsonl:2: the prompt is empty \(column 'question"),
        (b'{"question": ["q"], "answer": "a"}', r"mine.jsonl:1: column 'question' must be text, not list"),
        (b'{"question": "\\ud83d", "answer": "a"}', r"mine.jsonl:1: .*surrogate"),
        (b'{"turns": []}', r"mine.jsonl:1: the prompt is empty"),
        (b'{"turns": "q"}', r"mine.jsonl:1: column 'turns' must be a list"),
        (b"", r"mine.jsonl: no rows"),
        (b"[]", r"mine.jsonl: no rows"),
    ],
)
def test_bad_rows_are_named(write, content, message):
    with pytest.raises(DataError, match=message):
        load_prompts([write(content)])


def test_damaged_containers_are_named(write):
    rows = b'{"question": "q", "answer": "a"}\n' * 50
    whole = gzip.compress(rows)
    for content in (whole[:-12], rows, whole[:30] + b"xxxx" + whole[34:]):
        with pytest.raises(DataError, match=r"mine.jsonl.gz: cannot be read"):
            load_prompts([write(content, "mine.jsonl.gz")])
    with pytest.raises(DataError, match=r"mine.parquet: not a readable Parquet file"):
        load_prompts([write(b"PAR1 no", "mine.parquet")])


def test_same_prompts_from_every_container(write, tmp_path):
    rows = [{"question": f"Nº {i}\u2028of two\r\nlines", "answer": "a"} for i in range(3)]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    plain = load_prompts([write("\n".join(lines).encode())])
    assert [p.turns[0] for p in plain] == [row["question"] for row in rows]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "mine.parquet")
    for other in (
        write(b"\xef\xbb\xbf" + "\r\n".join(lines).encode() + b"\r\n"),  # BOM and CRLF
        write(gzip.compress("\n".join(lines).encode()), "mine.jsonl.gz"),
        write(json.dumps(rows, indent=2).encode(), "mine.json"),
        write("\n".join(lines).encode(), "mine.JSON"),  # lines under the wrong name
        str(tmp_path / "mine.parquet"),
    ):
        assert load_prompts([other]) == plain


def test_parquet_of_nested_columns(tmp_path):
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    pq.write_table(pa.Table.from_pylist([{"messages": chat}, {"messages": chat[:1]}]), tmp_path / "c.parquet")
    (prompt,) = load_prompts([str(tmp_path / "c.parquet")])
    assert prompt.answers == ("a",)
    pq.write_table(pa.table({"turns": [["q1", "q2"]], "category": ["x"]}), tmp_path / "t.parquet")
    assert one(str(tmp_path / "t.parquet")).turns == ("q1", "q2")


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("Some/HumanEval.v1.2.jsonl.gz", "humaneval.v1.2"),
        ("Math500/test.jsonl", "math500"),
        ("mt_bench/question.json", "mt_bench"),
        ("a/svamp_test.jsonl", "svamp_test"),
    ],
)
def test_default_labels(name, label):
    assert PromptSource(source=name).label == label
    assert PromptSource(source=name, name="mine").label == "mine"


@pytest.mark.parametrize("layout", ["jsonl", "parquet"])
def test_hub_data_set_from_a_local_folder(write, tmp_path, monkeypatch, layout):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    sizes = {"train": 5, "test": 2}
    for split, size in sizes.items():
        rows = [{"query": f"{split} {i}", "response": "a", "original_question": "Q", "type": "t"} for i in range(size)]
        write(rows, f"MyMath/{split}.jsonl")
        if layout == "parquet":
            (tmp_path / "MyMath" / f"{split}.jsonl").unlink()
            pq.write_table(pa.Table.from_pylist(rows), tmp_path / "MyMath" / f"{split}.parquet")
    folder = f"hf:{tmp_path / 'MyMath'}"
    for split, size in sizes.items():
        prompts = load_prompts([f"{folder}:{split}"])
        assert [p.turns[0] for p in prompts] == [f"{split} {i}" for i in range(size)]
        assert {(p.dataset, p.category, p.answers) for p in prompts} == {("mymath", "t", ("a",))}
        assert len({p.cluster_id for p in prompts}) == 1
    assert len(load_prompts([f"{folder}:default:train:3"])) == 3
    with pytest.raises(DataError, match=r"say which split.*train, test"):
        load_prompts([folder])
    with pytest.raises(DataError, match=r"hf:.*dev"):
        load_prompts([f"{folder}:dev"])
    with pytest.raises(UsageError, match="expected hf:org/name"):
        load_prompts([f"{folder}:a:b:c"])


@pytest.mark.parametrize(
    ("address", "config", "split"),
    [
        ("org/name:train[:99%]", None, "train[:99%]"),
        ("org/name:main:train[10:20]", "main", "train[10:20]"),
        ("org/name:train", None, "train"),
        ("org/name", None, None),
    ],
)
def test_a_slice_of_a_split_keeps_its_colon(monkeypatch, address, config, split):
    asked = []

    def load_dataset(path, name, split):
        asked.append((path, name, split))
        return [{"question": "a", "answer": "b"}]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset, DatasetDict=dict))
    (prompt,) = load_prompts([f"hf:{address}"])
    assert asked == [("org/name", config, split)]
    assert prompt.dataset == "name"


def test_hub_without_its_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match=r"draftlab\[hub\]"):
        load_prompts(["hf:org/name"])


@real_files
@pytest.mark.parametrize(
    ("file", "label", "rows", "distinct", "turns", "answered"),
    [
        ("gsm8k/test.jsonl", "gsm8k", 1319, 1319, {1: 1319}, 1319),
        ("gsm8k/train.jsonl", "gsm8k", 7473, 7473, {1: 7473}, 7473),
        ("math500/test.jsonl", "math500", 500, 500, {1: 500}, 500),
        ("mbpp/mbpp.jsonl", "mbpp", 974, 970, {1: 970}, 970),
        ("mbpp/sanitized-mbpp.json", "sanitized-mbpp", 427, 425, {1: 425}, 425),
        ("humaneval/HumanEval.jsonl", "humaneval", 164, 164, {1: 164}, 164),
        ("mt_bench/question.jsonl", "mt_bench", 80, 80, {2: 80}, 39),
        ("spec_bench/question.jsonl", "spec_bench", 480, 480, {1: 400, 2: 80}, 279),
        ("metamath/GSM8K_Backward.jsonl", "gsm8k_backward", 1270, 1270, {1: 1270}, 1270),
        ("svamp/svamp_test.jsonl", "svamp_test", 1000, 1000, {1: 1000}, 1000),
    ],
)
def test_real_files(file, label, rows, distinct, turns, answered):
    path = SHARED / file
    text = path.read_text(encoding="utf-8")
    assert rows == (len(json.loads(text)) if path.suffix == ".json" else text.rstrip("\n").count("\n") + 1)
    prompts = load_prompts([str(path)])
    assert len(prompts) == distinct
    assert Counter(len(p.turns) for p in prompts) == turns
    assert sum(bool(p.answers) for p in prompts) == answered
    assert {p.dataset for p in prompts} == {label}


@real_files
def test_real_augmented_rows_share_clusters_with_their_questions():
    augmented = load_prompts([str(SHARED / "metamath" / "GSM8K_Backward.jsonl")])
    test = load_prompts([str(SHARED / "gsm8k" / "test.jsonl")])
    train = load_prompts([str(SHARED / "gsm8k" / "train.jsonl")])
    # made from the test questions: every row has its question there, and none among the training questions
    assert {p.cluster_id for p in augmented} <= {p.cluster_id for p in test}
    assert not {p.cluster_id for p in augmented} & {p.cluster_id for p in train}
    overlap = remove_overlap(test, augmented)
    assert (len(overlap.kept), len(overlap.same_prompt), len(overlap.same_original)) == (49, 0, 1270)
    assert remove_overlap(augmented, train).kept == tuple(augmented)


@real_files
def test_real_spec_bench_repeats_others():
    """Spec-Bench takes in MT-Bench whole and 80 questions of GSM8K; ids and clusters show it across files."""
    spec = load_prompts([str(SHARED / "spec_bench" / "question.jsonl")])
    others = load_prompts([str(SHARED / "mt_bench" / "question.jsonl"), str(SHARED / "gsm8k" / "test.jsonl")])
    assert len(remove_overlap(spec, others).same_prompt) == 160
