"""vLLM itself with drafters of ours, where `make serve-env` has been run: it counts what our decoder counts.

The drafters are untrained, so that little is accepted; the committed serving experiment has trained ones.
"""

from pathlib import Path

import pytest

from drafters.axes import DrafterChoice, complete
from drafters.checkpoints.export import export
from drafters.decoding.proposers import BlockProposer
from drafters.model.drafter import Drafter
from drafters.serving.client import Ask, put_load
from drafters.serving.counters import Counts, scrape
from drafters.serving.engines import ENVIRONMENT, VLLM_PYTHON, Place, command
from drafters.serving.loading import Served
from drafters.serving.offline import offline_counts
from drafters.serving.plan import ArmPlan
from drafters.serving.process import ServerError, free_port, running
from drafters.target import smollm2
from drafters.target.frozen import Target

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path(VLLM_PYTHON).exists(), reason="requires make serve-env"),
]
OPTIONS = ("--dtype", "float32", "--max-model-len", "512", "--enforce-eager", "--no-enable-prefix-caching")
PROMPTS = ["One, two, three, four, one, two, three,", "The cat sat on the mat. The cat sat on", "Write a line."]
TOKENS = 16


@pytest.fixture(scope="module")
def target():
    return Target.load(smollm2.NAME)


def counted_by_vllm(folder, target, tmp_path):
    ids = [target.tokenizer(text)["input_ids"] for text in PROMPTS]
    place = Place("127.0.0.1", free_port(), len(ids))
    arm = ArmPlan(engine="vllm", block_size=4, options=OPTIONS)
    line = command(arm, "served", place, str(smollm2.prepare(lambda text: None)[0]), str(folder))
    env = {**ENVIRONMENT["vllm"], "VLLM_CPU_KVCACHE_SPACE": "1"}
    url = f"http://127.0.0.1:{place.port}"
    with running(line, env, tmp_path / "vllm.log", url, 300, lambda text: None):
        load = put_load(url, ids, Ask("served", TOKENS), len(ids))
        counts = scrape(url)
    assert [answer.status for answer in load.answers] == ["ok"] * len(ids)
    return ids, counts or Counts()


def drafter_of(target, **axes):
    choice = DrafterChoice(num_layers=2, target_layers=5, block_size=4, mask_token_id=16, **axes)
    return Drafter(complete(choice, target)).initialise(1).eval()


@pytest.mark.parametrize("axes", [{}, {"fusion": "gated", "gate_activation": "affine"}, {"fusion": "layerwise"}])
def test_vllm_counts_what_our_decoder_counts(target, tmp_path, axes):
    drafter = drafter_of(target, **axes)
    export(drafter, tmp_path / "drafter", "zlab", target)
    ids, theirs = counted_by_vllm(tmp_path / "drafter", target, tmp_path)
    served = Served(target, BlockProposer(target, drafter), "ours")
    ours = offline_counts(served, ids, TOKENS, ignore_eos=True, whole_last_step=True)
    assert (theirs.drafts, theirs.accepted) == (ours.drafts, ours.accepted)


@pytest.mark.xfail(
    strict=True,
    raises=ServerError,
    reason="vLLM 0.32 on the CPU: 'Model Runner V1 does not support: DFlash candidate-head drafts'",
)
def test_vllm_serves_dflash2(target, tmp_path):
    drafter = drafter_of(target, mixing="conv", selection="path")
    export(drafter, tmp_path / "drafter", "zlab", target)
    ids, theirs = counted_by_vllm(tmp_path / "drafter", target, tmp_path)
    served = Served(target, BlockProposer(target, drafter), "ours")
    ours = offline_counts(served, ids, TOKENS, ignore_eos=True, whole_last_step=True)
    assert (theirs.drafts, theirs.accepted) == (ours.drafts, ours.accepted)
