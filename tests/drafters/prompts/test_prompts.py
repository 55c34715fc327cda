"""The notation of prompt sources, loading lists of them, and the command that shows them."""

import json
import subprocess
import sys

import pytest
from pydantic import ValidationError

from analysis.errors import DataError, Exit, UsageError, run_command
from drafters.commands.prompts import main
from drafters.prompts.sources import PromptSource, load_prompts, parse_source


@pytest.fixture
def numbered(tmp_path):
    """Write n numbered GSM8K-like rows, in the given order, and return the path."""

    def _write(name, numbers) -> str:
        rows = [{"question": f"question {i}", "answer": str(i)} for i in numbers]
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        return str(tmp_path / name)

    return _write


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gsm_symbolic:200", {"source": "gsm_symbolic", "count": 200}),
        ("gsm_symbolic/unseen:200", {"source": "gsm_symbolic", "split": "unseen", "count": 200}),
        ("gsm_symbolic/unseen:200@3", {"source": "gsm_symbolic", "split": "unseen", "count": 200, "seed": 3}),
        ("a@b.jsonl:5@0", {"source": "a@b.jsonl", "count": 5}),
        ("a@b.jsonl", {"source": "a@b.jsonl"}),
        ("gsm_symbolic/seen", {"source": "gsm_symbolic", "split": "seen"}),
        ("humaneval", {"source": "humaneval"}),
        ("path/file.jsonl:100", {"source": "path/file.jsonl", "count": 100}),
        ("path/a b.jsonl", {"source": "path/a b.jsonl"}),
        ("hf:meta-math/MetaMathQA", {"source": "hf:meta-math/MetaMathQA"}),
        ("hf:meta-math/MetaMathQA:train:1000", {"source": "hf:meta-math/MetaMathQA:train", "count": 1000}),
        ("hf:openai/gsm8k:main:test", {"source": "hf:openai/gsm8k:main:test"}),
    ],
)
def test_shorthand(text, expected):
    assert parse_source(text) == PromptSource(**expected)


def test_path_with_a_colon_that_exists_is_the_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse_source("odd.jsonl:7").count == 7
    (tmp_path / "odd.jsonl:7").write_text('{"question": "q", "answer": "a"}', encoding="utf-8")
    assert parse_source("odd.jsonl:7") == PromptSource(source="odd.jsonl:7")
    assert parse_source("odd.jsonl:7:3") == PromptSource(source="odd.jsonl:7", count=3)
    assert len(load_prompts(["odd.jsonl:7"])) == 1


@pytest.mark.parametrize("text", ["", "gsm_symbolic:0"])
def test_senseless_shorthand(text):
    with pytest.raises(UsageError, match="prompt source"):
        parse_source(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "gcd", "split": "seen"}, "split and per_template are for gsm_symbolic"),
        ({"source": "f.jsonl", "per_template": 2}, "split and per_template are for gsm_symbolic"),
        ({"source": "gcd", "fields": {"question": "q"}}, "fields are for files"),
        ({"source": "f.jsonl", "fields": {"qestion": "q"}}, "no key 'qestion'; keys: question"),
        ({"source": "f.jsonl", "fields": {"question": "q", "turns": "t"}}, "one of question, turns and messages"),
        ({"source": "f.jsonl", "number": 3}, "number"),
        ({"source": "f.jsonl", "count": -1}, "greater than 0"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValidationError, match=message):
        PromptSource(**options)


def test_count_is_a_seeded_choice_that_ignores_file_order(numbered):
    forwards, backwards = numbered("a.jsonl", range(100)), numbered("b.jsonl", range(99, -1, -1))

    def choice(path, count=20, seed=0):
        return [p.turns[0] for p in load_prompts([PromptSource(source=path, count=count, seed=seed)])]

    assert choice(forwards) == choice(backwards)
    assert choice(forwards, 5) == choice(forwards)[:5]
    assert choice(forwards) != choice(forwards, seed=1)
    assert len(set(choice(forwards))) == 20
    assert sorted(choice(forwards, 100)) == sorted(f"question {i}" for i in range(100))
    with pytest.raises(DataError, match="101 distinct prompts asked for, 100 available"):
        choice(forwards, 101)


def test_without_count_file_order_and_first_of_equals(numbered):
    first, second = numbered("a.jsonl", [3, 1, 3, 2]), numbered("b.jsonl", [1, 4])
    prompts = load_prompts([first, PromptSource(source=second)])
    assert [(p.dataset, p.answers[0]) for p in prompts] == [("a", "3"), ("a", "1"), ("a", "2"), ("b", "4")]


def test_sources_that_cannot_be_loaded(numbered, tmp_path):
    with pytest.raises(UsageError, match=r"gcd: say how many prompts, e\.g\. gcd:200"):
        load_prompts(["gcd"])
    with pytest.raises(DataError, match="no such file, and no such family; did you mean gsm_symbolic"):
        load_prompts(["gsm_symbolik:3"])
    with pytest.raises(DataError, match="no such file, and no such family; families: gsm_symbolic, "):
        load_prompts([str(tmp_path / "absent.jsonl")])
    with pytest.raises(DataError, match="cannot be read"):
        load_prompts([str(tmp_path)])
    path = numbered("a.jsonl", range(3))
    with pytest.raises(UsageError, match="two sources are labelled 'a' but differ in role"):
        load_prompts([path, PromptSource(source=path, role="confirmatory")])


def test_command_shows_data_sets(numbered, tmp_path, capsys):
    markup = tmp_path / "[bold]odd.jsonl"
    markup.write_text('{"question": "[/red] 12345678", "answer": "a"}', encoding="utf-8")
    assert run_command(main, [numbered("plain.jsonl", range(10)) + ":4", str(markup)]) == Exit.OK
    shown = {line.split("│")[1].strip(): line for line in capsys.readouterr().out.splitlines() if line.startswith("│")}
    assert [cell.strip() for cell in shown["plain"].split("│")[2:5]] == ["4", "4", "10"]
    assert [cell.strip() for cell in shown["[bold]odd"].split("│")[2:6]] == ["1", "1", "15", "[/red] 12345678"]
    assert run_command(main, [str(tmp_path / "absent.jsonl")]) == Exit.DATA
    assert capsys.readouterr().err.count("\n") == 1


def test_no_torch_is_needed():
    code = "import sys, drafters.prompts.sources; assert not {'torch', 'reasoning_gym', 'datasets'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
