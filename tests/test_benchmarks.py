"""Every benchmark runs, in its fast mode: none can rot unseen. What they measure is not looked at here."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import yaml

from benchmarks import calibration_grid, exact, scale, sequential
from benchmarks.fuzz_importers.everything import main as fuzz_importers


def last_line(capfd):
    return json.loads(capfd.readouterr().out.splitlines()[-1])


def test_exact(capfd):
    assert exact.main(["--fast"]) == 0
    found = last_line(capfd)
    assert found["against_scipy_s"]["ratio"] > 0 and found["compare"]["whole_s"] > 0


def test_scale(capfd, tmp_path):
    assert scale.main(["--rows", "2e4", "--folder", str(tmp_path)]) == 0
    assert last_line(capfd)["benchmark"] == "scale"


def test_fuzz_importers(capfd):
    assert fuzz_importers(["90", "--seed", "3"]) == 0
    assert "0 faults" in capfd.readouterr().out


def test_calibration_grid(capfd, tmp_path):
    keep = tmp_path / "done.jsonl"
    few = ["--studies", "40", "--keep", str(keep), "--cells", "9", "99", "215"]
    assert calibration_grid.main(few) == 0
    assert (last_line(capfd)["cells"], len(keep.read_text().splitlines())) == (3, 3)
    done = [calibration_grid.Found(**json.loads(line)) for line in keep.read_text().splitlines()]
    assert calibration_grid.main(few) == 0 and len(keep.read_text().splitlines()) == 3
    several = [replace(done[i % 3], **asdict(cell)) for i, cell in enumerate(calibration_grid.CELLS)]
    assert calibration_grid.picture(several).axes and "216 designs" in calibration_grid.report(several)


def test_sequential(capfd):
    assert sequential.main(["--studies", "6"]) == 0
    assert last_line(capfd)["benchmark"] == "sequential"


class TestOfDrafters:
    """On a tiny target of twelve layers, since the fusions take nine."""

    @pytest.fixture(scope="class")
    def target(self, tmp_path_factory):
        pytest.importorskip("torch")
        from tests.tiny import tiny_target

        folder = tmp_path_factory.mktemp("target") / "tiny"
        made = tiny_target(layers=12)
        made.model.save_pretrained(folder)
        made.tokenizer.save_pretrained(folder)
        return folder

    def test_fusion(self, capfd, target):
        from benchmarks import fusion

        call = ["--target", str(target), "--layers", "1", "--mask", "3", "--tokens", "6", "--rounds", "1"]
        assert fusion.main(call) == 0
        assert len(last_line(capfd)["arms"]) == len(fusion.ARMS)

    def test_verification(self, capfd, target):
        from benchmarks import verification

        assert verification.main(["--target", str(target), "--context", "8", "--rounds", "1"]) == 0
        assert set(last_line(capfd)["ms"]) == {str(size) for size in verification.SIZES}

    def test_training(self, capfd, target, tmp_path):
        from benchmarks import training

        recipe = {
            "name": "arm",
            "target": str(target),
            "drafter": {"num_layers": 1, "target_layers": 2, "block_size": 4, "mask_token_id": 3},
            "corpus": {"prompts": ["gsm_symbolic:4"], "max_new_tokens": 16},
            "training": {"steps": 4, "batch": 2, "anchors": 4},
        }
        (tmp_path / "arm.yaml").write_text(yaml.safe_dump(recipe))
        assert training.main(["--recipe", str(tmp_path / "arm.yaml"), "--rounds", "1"]) == 0
        assert len(last_line(capfd)["arms"]) == 6

    def test_dry_run(self, capfd, target):
        from benchmarks import dry_run

        assert dry_run.main(["--target", str(target), "--fast"]) == 0
        assert [shape["shape"] for shape in last_line(capfd)["shapes"]] == ["study"]

    @pytest.mark.slow
    def test_gpu_smoke(self, target, tmp_path):
        """The script itself, on the CPU."""
        lines = [json.dumps({"question": f"What is {n} plus {n + 1}?", "answer": str(2 * n + 1)}) for n in range(12)]
        (tmp_path / "train.jsonl").write_text("\n".join(lines[:8]))
        (tmp_path / "test.jsonl").write_text("\n".join(lines[8:10]))
        script = Path(__file__).parents[1] / "benchmarks" / "gpu_smoke.sh"
        command = [str(script), "--fast", "--device", "cpu", "--out", str(tmp_path / "out"), "--target", str(target)]
        command += ["--prompts", str(tmp_path / "train.jsonl"), "--held-out", str(tmp_path / "test.jsonl")]
        command += ["--set", "drafter.draft_vocab=100"]
        environment = os.environ | {"PYTHON": sys.executable, "DRAFTLAB_CACHE": str(tmp_path / "cache")}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        result = json.loads((tmp_path / "out" / "gpu_smoke.json").read_text())
        assert [arm["arm"] for arm in result["arms"]] == ["dflash", "dynadflash", "dflare"]
        assert all(arm[name] > 0 for arm in result["arms"] for name in arm if name != "arm")
        assert (tmp_path / "out" / "runs" / "dflare" / "progress.jsonl").exists()

    def test_replay(self, capfd, target):
        from benchmarks import replay

        call = ["--target", str(target), "--mask", "3", "--prompts", "3", "--tokens", "8", "--rounds", "1"]
        assert replay.main(call) == 0
        found = last_line(capfd)
        taus = {found[name] for name in found if name.startswith("tau: ")}
        assert len(taus) == 1  # every way of evaluating gives the same steps

    def test_load_generators(self, capfd, target, monkeypatch):
        pytest.importorskip("reasoning_gym")
        from benchmarks import load_generators

        if not Path(load_generators.VLLM_PYTHON).exists():  # everything but the other generator
            monkeypatch.setattr(load_generators, "VLLM_PYTHON", sys.executable)
            monkeypatch.setattr(load_generators, "theirs", lambda url, asked, *_: load_generators.ours(url, asked))
        call = [str(target), "--requests", "3", "--concurrency", "2", "--tokens", "4", "--rounds", "2"]
        assert load_generators.main(call) == 0
        found = last_line(capfd)
        assert [len(speeds) for speeds in found["tokens_per_s"].values()] == [2, 2] and found["ratio"] > 0

    def test_block_rules(self, capfd, target, tmp_path, monkeypatch):
        pytest.importorskip("reasoning_gym")
        from benchmarks import block_rules

        monkeypatch.setattr(block_rules, "load_drafter", lambda folder: self.drafter(target))
        monkeypatch.setattr(block_rules, "common_target", lambda folders, device: self.loaded(target))
        monkeypatch.setattr(block_rules, "weights_of", lambda folder, manifest: folder)
        monkeypatch.setattr(block_rules, "read_manifest", lambda folder: None)
        assert block_rules.main([str(tmp_path), "--prompts", "2", "--tokens", "6"]) == 0
        found = last_line(capfd)["rules"]
        assert found["plain"]["verified"] == found["plain"]["tau"] == found["plain"]["speed_up"] == 1
        assert {"lookup, block 4", "block 3, with lookup", "confidence 0.4"} <= set(found)

    def test_decoding(self, capfd, target, tmp_path, monkeypatch):
        pytest.importorskip("reasoning_gym")
        from benchmarks import decoding

        # the benchmark reads a trained run; here its parts are given
        monkeypatch.setattr(decoding, "load_drafter", lambda folder: self.drafter(target))
        monkeypatch.setattr(decoding, "common_target", lambda folders, device: self.loaded(target))
        monkeypatch.setattr(decoding, "weights_of", lambda folder, manifest: folder)
        monkeypatch.setattr(decoding, "read_manifest", lambda folder: None)
        call = [str(tmp_path), "--prompts", "2", "--speed-prompts", "2", "--tokens", "6", "--longer", "8"]
        assert decoding.main([*call, "--scratch", str(tmp_path / "scratch")]) == 0
        assert "batch of 8 against 1 (tokens/s)" in last_line(capfd)

    @staticmethod
    def loaded(folder):
        from drafters.target.frozen import Target

        return Target.load(str(folder))

    def drafter(self, folder):
        from drafters.axes import DrafterChoice, complete
        from drafters.model.drafter import Drafter

        choice = DrafterChoice(num_layers=1, target_layers=2, block_size=4, mask_token_id=3)
        return Drafter(complete(choice, self.loaded(folder))).initialise(0).eval()
