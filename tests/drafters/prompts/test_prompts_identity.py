"""Ids are hashes of content, clusters are questions, and overlap goes by both."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import DataError
from drafters.prompts.identity import Prompt, make_prompt, messages, normalise, prompt_set_hash, remove_overlap

TEXT = st.text(st.characters(codec="utf-8"), min_size=1).filter(str.strip)


def prompt(text: str = "What is 2+2?", dataset: str = "d", **options) -> Prompt:
    return make_prompt([text], dataset, **options)


def test_ids_are_stable_hashes_of_content():
    # golden: printf '[null,["What is 2+2?"]]' | sha256sum, and printf 'what is 2+2?' | sha256sum
    assert prompt().prompt_id == "070354002257b053"
    assert prompt().cluster_id == "61a3385003d9b9d3"
    # printf '["Be brief.",["What is 2+2?","Why?"]]' | sha256sum; the cluster leaves the system message out
    chat = make_prompt(["What is 2+2?", "Why?"], "d", system="Be brief.")
    assert chat.prompt_id == "e21b94cfd1167951"
    assert chat.cluster_id == "a398536a043dab3a"


def test_prompt_id_ignores_everything_but_the_text():
    other = make_prompt(["What is 2+2?"], "e", original="x", answers=["4"], category="c", template="t:1")
    assert other.prompt_id == prompt().prompt_id
    assert prompt("What is 2+2? ").prompt_id != prompt().prompt_id
    assert prompt(system="Be brief.").prompt_id != prompt().prompt_id
    assert make_prompt(["a", "b"], "d").prompt_id != make_prompt(["a\nb"], "d").prompt_id


@given(TEXT, st.sampled_from([" ", "\t", "\r\n", "\u00a0", "\u2003"]))
def test_cluster_ignores_white_space_and_case(text, space):
    spaced = space + space.join(text.split()) + space
    assert prompt(spaced).cluster_id == prompt(text).cluster_id
    if text.isascii():
        assert prompt(text.upper()).cluster_id == prompt(text.lower()).cluster_id


def test_normalise_folds_width_but_keeps_punctuation():
    assert normalise("  Ｔｏｍ's\u00a0ﬁve\nEGGS, x² ") == "tom's five eggs, x2"
    assert normalise("1,000") != normalise("1000")


def test_augmented_row_has_the_cluster_of_its_question():
    question = prompt("Tom has 3 eggs. How many?", "gsm8k")
    augmented = prompt("Tom has x eggs; x is?", "metamath", original=" Tom has 3 eggs.  HOW many? ")
    assert augmented.cluster_id == question.cluster_id
    assert augmented.prompt_id != question.prompt_id
    assert prompt(original="  ").cluster_id == prompt().cluster_id  # a blank original is none
    assert prompt(template="gsm_symbolic:42").cluster_id == "gsm_symbolic:42"


@pytest.mark.parametrize(
    ("turns", "options", "message"),
    [
        ([], {}, "empty"),
        (["a", " \n"], {}, "empty"),
        (["a", "b"], {"answers": ["1"]}, "1 answers for 2 turns"),
        (["half \ud83d"], {}, "surrogate"),
        (["a"], {"answers": ["half \ud83d"]}, "surrogate"),
    ],
)
def test_unusable_prompts_are_refused(turns, options, message):
    with pytest.raises(DataError, match=message):
        make_prompt(turns, "d", **options)


def test_messages_up_to_the_turn_to_answer():
    chat = make_prompt(["q1", "q2"], "d", system="s")
    assert messages(chat) == [{"role": "system", "content": "s"}, {"role": "user", "content": "q1"}]
    assert [m["role"] + ":" + m["content"] for m in messages(chat, ["a1"])] == [
        "system:s",
        "user:q1",
        "assistant:a1",
        "user:q2",
    ]
    with pytest.raises(ValueError, match="2 replies to 2 turns"):
        messages(chat, ["a1", "a2"])


def test_prompt_set_hash_sees_members_labels_and_order():
    a, b, relabelled = prompt("a"), prompt("b"), prompt("a", "e")
    hashes = [prompt_set_hash(s) for s in ([], [a], [a, b], [b, a], [relabelled, b])]
    assert len(set(hashes)) == len(hashes)
    # golden: printf '["1f05bb6e25f399c4", "d"]\n' | sha256sum
    assert prompt_set_hash([a]) == "edab207d999037f963e9230e623a3f3d007143b35b9a8a057dfedf95b2042ad1"


def test_overlap_by_prompt_and_by_original_question_but_not_by_template():
    train = [
        prompt("known"),
        prompt("backwards A", original="question A"),
        prompt("train numbers", template="gsm_symbolic:1"),
    ]
    test = [
        prompt("new"),
        prompt("known"),
        prompt("Question  a"),  # the original of a training row
        prompt("forwards A", original="question A"),  # another augmentation of it
        prompt("test numbers", template="gsm_symbolic:1"),  # a seen template is no overlap
        prompt("train numbers", template="gsm_symbolic:1"),  # the same prompt is
        prompt("KNOWN"),  # another prompt, the same question
    ]
    overlap = remove_overlap(iter(test), iter(train))
    assert overlap.kept == (test[0], test[4])
    assert overlap.same_prompt == (test[1].prompt_id, test[5].prompt_id)
    assert overlap.same_original == (test[2].prompt_id, test[3].prompt_id, test[6].prompt_id)


@given(st.lists(st.sampled_from("abcABC")), st.lists(st.sampled_from("abcABC")))
def test_overlap_leaves_nothing_in_common_and_loses_nothing(test, train):
    test, train = [prompt(t) for t in test], [prompt(t) for t in train]
    overlap = remove_overlap(test, train)
    assert not {p.cluster_id for p in overlap.kept} & {p.cluster_id for p in train}
    assert len(overlap.kept) + len(overlap.same_prompt) + len(overlap.same_original) == len(test)
    assert remove_overlap(test, []).kept == tuple(test)
