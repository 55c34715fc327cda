"""The driver against fake servers: what is measured, the order of trials, resuming, and every fault."""

import json
import socket
import sys
from pathlib import Path

import pytest
import yaml

from analysis.errors import DataError, UsageError
from analysis.runlog.reading import Run
from drafters.commands.throughput import main, run_plan
from drafters.serving.counters import Counts, parse_counters
from drafters.serving.engines import Place, command
from drafters.serving.plan import ArmPlan, ServingPlan, visits
from drafters.serving.process import ServerError, is_taken
from drafters.settings import parse

FAKE = str(Path(__file__).parent / "fake_server.py")


def fake(mode):
    return {"command": ["{python}", FAKE, "{port}", mode], "python": sys.executable}


def plan(workplace, target_folder, modes, **changes):
    settings = {
        "name": "trial",
        "target": str(target_folder),
        "prompts": [{"source": str(workplace / "test.jsonl"), "name": "sums", "count": 5}],
        "arms": {name: fake(mode) for name, mode in modes.items()},
        "blocks": 1,
        "concurrency": [2],
        "max_tokens": 6,
        "check_offline": False,
        "start_timeout_s": 20,
        "request_timeout_s": 3,
    }
    return parse(ServingPlan, settings | changes, "plan")


def trials(folder):
    return Run.open(folder).read("throughput").to_pylist()


@pytest.fixture
def folder(workplace):
    return workplace / "runs" / "trial"


def test_trials_requests_and_counters(workplace, target_folder, folder):
    asked = plan(workplace, target_folder, {"a": "ok", "b": "ok"}, blocks=2, concurrency=[1, 3])
    run_plan(asked, folder, workplace)
    rows = trials(folder)
    assert [(r["block"], r["order"], r["arm"], r["concurrency"]) for r in rows] == [
        (0, 0, "a", 1), (0, 0, "a", 3), (0, 1, "b", 1), (0, 1, "b", 3),
        (1, 0, "b", 1), (1, 0, "b", 3), (1, 1, "a", 1), (1, 1, "a", 3),
    ]  # fmt: skip
    assert {r["status"] for r in rows} == {"ok"} and {r["output_tokens"] for r in rows} == {5 * 6}
    for r in rows:
        # two steps a request; two engines show the same, and are summed; the warm-up is not in it
        assert (r["drafts"], r["draft_tokens"], r["accepted"], r["accepted_at"]) == (20, 60, 40, [20, 20, 0])
        assert r["tokens_per_s"] == pytest.approx(30 / r["duration_s"])
    requests = Run.open(folder).read("requests").to_pylist()
    assert len(requests) == 8 * 5 and all(0 < r["ttft_s"] < r["e2e_s"] for r in requests)
    assert len({r["output_hash"] for r in requests}) == len({r["prompt_id"] for r in requests}) == 5
    assert Run.open(folder).manifest.caveats == []
    assert run_plan(asked, folder, workplace) == [f"{folder}: complete already; nothing to do"]
    with pytest.raises(DataError):
        run_plan(asked.model_copy(update={"max_tokens": 9}), folder, workplace)


FAULTS = {
    "die-starting": "exit code 3: unknown drafter architecture",
    "die-serving": "exit code 7: out of memory",
    "hang": "no answer within",
    "error-500": "HTTP 500: the engine has failed",
    "half-way": "closed half-way",
    "no-usage": "no usage",
    "short": "5 tokens where 6 were asked for",
}


@pytest.mark.parametrize("mode", FAULTS)
def test_a_fault_fails_its_trial_alone(workplace, target_folder, folder, mode):
    asked = plan(workplace, target_folder, {"bad": mode, "good": "ok"}, request_timeout_s=1.5 if mode == "hang" else 5)
    run_plan(asked, folder, workplace)
    bad, good = trials(folder)
    assert (bad["status"], good["status"]) == ("failed", "ok")
    assert FAULTS[mode] in bad["reason"]
    assert bad["tokens_per_s"] is None and bad["output_tokens"] is None and bad["drafts"] is None
    assert any("failed" in caveat for caveat in Run.open(folder).manifest.caveats)


def test_a_port_that_is_taken(workplace, target_folder, folder):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        run_plan(plan(workplace, target_folder, {"a": "ok"}, port=port), folder, workplace)
    (row,) = trials(folder)
    assert row["status"] == "failed" and f"port {port}" in row["reason"]


def test_a_server_that_is_not_healthy_in_time(workplace, target_folder, folder):
    run_plan(plan(workplace, target_folder, {"a": "slow-start"}, start_timeout_s=0.5), folder, workplace)
    assert "not healthy" in trials(folder)[0]["reason"]


def test_a_program_that_is_not_there(workplace, target_folder, folder):
    arms = {"a": {"command": ["/nowhere/engine", "{port}"]}}
    run_plan(plan(workplace, target_folder, {}, arms=arms), folder, workplace)
    assert "/nowhere/engine" in trials(folder)[0]["reason"]


def test_no_process_and_no_port_is_left(workplace, target_folder, folder):
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    run_plan(plan(workplace, target_folder, {"a": "child"}, port=port), folder, workplace)
    assert trials(folder)[0]["status"] == "ok"
    assert not is_taken("127.0.0.1", port)
    lines = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if p.exists()]
    assert not [line for line in lines if b"fake" in line and str(port).encode() in line]


def test_a_stopped_experiment_goes_on_with_the_next_trial(workplace, target_folder, folder, monkeypatch):
    asked = plan(workplace, target_folder, {"a": "ok", "b": "ok"})
    from drafters.serving.trial import Bench

    visit = Bench.visit

    def stopped(self, turn, arm, done, keep):
        if turn.arm == "b":
            raise KeyboardInterrupt
        visit(self, turn, arm, done, keep)

    monkeypatch.setattr(Bench, "visit", stopped)
    with pytest.raises(KeyboardInterrupt):
        run_plan(asked, folder, workplace)
    kept = json.loads((folder / ".partial" / "trials" / "0000.json").read_text())
    monkeypatch.setattr(Bench, "visit", visit)
    run_plan(asked, folder, workplace)
    assert [r["arm"] for r in trials(folder)] == ["a", "b"]
    assert trials(folder)[0]["duration_s"] == kept["row"]["duration_s"]


def test_arms_that_differ_in_output_are_reported(workplace, target_folder, folder):
    run_plan(plan(workplace, target_folder, {"a": "ok", "b": "other-text"}), folder, workplace)
    # the last answers of b carry another text
    assert any("differ" in caveat for caveat in Run.open(folder).manifest.caveats)


def test_a_running_server_is_used_and_left_alone(workplace, target_folder, folder):
    import subprocess
    import time

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    process = subprocess.Popen([sys.executable, FAKE, str(port), "ok"])
    try:
        while not is_taken("127.0.0.1", port):
            time.sleep(0.05)
        arms = {"there": {"url": f"http://127.0.0.1:{port}/v1"}}
        run_plan(plan(workplace, target_folder, {}, arms=arms), folder, workplace)
        assert trials(folder)[0]["status"] == "ok" and process.poll() is None
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("arms", "blocks", "balanced"), [(3, 3, True), (3, 6, True), (3, 4, False), (1, 1, True)])
def test_order_is_a_latin_square(arms, blocks, balanced):
    names = [f"a{i}" for i in range(arms)]
    settings = {"name": "x", "target": "t", "prompts": ["p"], "arms": {n: {} for n in names}, "blocks": blocks}
    asked = parse(ServingPlan, settings, "plan")
    order = visits(asked)
    assert asked.balanced is balanced
    for block in range(blocks):
        assert sorted(v.arm for v in order if v.block == block) == names
    places = {(v.arm, v.order): 0 for v in order}
    for v in order:
        places[v.arm, v.order] += 1
    assert (len(set(places.values())) == 1 and len(places) == arms**2) is balanced


def test_counters_are_summed_over_engines_and_times_are_not_counts():
    page = (
        'vllm:spec_decode_num_drafts_total{engine="0"} 4.0\nvllm:spec_decode_num_drafts_total{engine="1"} 6.0\n'
        'vllm:spec_decode_num_drafts_created{engine="0"} 1.7e9\n'
        'vllm:spec_decode_num_draft_tokens_total{engine="0"} 70.0\n'
        'vllm:spec_decode_num_accepted_tokens_total{engine="0"} 9.0\n'
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 3.0\n'
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",position="0"} 6.0\n'
    )
    assert parse_counters(page) == Counts(10, 70, 9, (6, 3))
    assert parse_counters("# nothing\n") is None and parse_counters("}{") is None
    later = Counts(12, 80, 10, (7, 3, 0))
    assert later.since(Counts(10, 70, 9, (6, 3))) == Counts(2, 10, 1, (1, 0, 0))
    with pytest.raises(ServerError):
        Counts(1, 7, 0, ()).since(later)


PLACE = Place("127.0.0.1", 8123, 8)


@pytest.mark.parametrize(
    ("arm", "drafter", "words"),
    [
        ({}, None, ["-m", "drafters.serve", "M", "--host", "127.0.0.1", "--port", "8123"]),
        ({"proposer": "lookup", "block_size": 4}, None, ["--lookup", "--block-size", "4"]),
        ({"engine": "vllm", "block_size": 8}, "D", ['{"method": "dflash", "model": "D", "num_speculative_tokens": 7}']),
        ({"engine": "vllm"}, None, ["--served-model-name", "arm", "--max-num-seqs", "8"]),
        ({"engine": "sglang"}, "D", ["--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", "D"]),
        ({"engine": "llama.cpp", "options": ["-c", "512"]}, "D", ["--model-draft", "D", "-c", "512"]),
        ({"command": ["run", "{name}:{port}", '{"a": 1}']}, None, ["run", "arm:8123", '{"a": 1}']),
    ],
)
def test_command_lines(arm, drafter, words):
    arm = {"python": "python"} | arm
    line = command(ArmPlan(**arm), "arm", PLACE, "M", drafter)
    at = line.index(words[0])
    assert line[at : at + len(words)] == words


def test_without_an_environment_for_vllm(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ServerError, match="make serve-env"):
        command(ArmPlan(engine="vllm"), "arm", PLACE, "M", None)


@pytest.mark.parametrize(
    "arm",
    [
        {"url": "http://x", "options": ["-x"]},
        {"engine": "vllm", "proposer": "lookup"},
        {"drafter": "x"},
        {"engine": "trt"},
    ],
)
def test_arms_that_cannot_be(arm):
    with pytest.raises(ValueError):
        ArmPlan(**arm)


def test_command(workplace, target_folder, capsys):
    asked = plan(workplace, target_folder, {"a": "ok"}).model_dump(mode="json")
    (workplace / "plan.yaml").write_text(yaml.safe_dump(asked))
    assert main(["plan.yaml"]) == 0
    assert "1 trial" in capsys.readouterr().out
    with pytest.raises(UsageError):
        main(["nowhere.yaml"])
