"""What an experiment leaves: trials kept one by one while it runs, then a run folder of two tables and a manifest."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.errors import DataError
from analysis.measures.throughput import DONE
from analysis.runlog.addresses import MANIFEST
from analysis.runlog.manifest import Environment, Manifest, Target, settings_hash
from analysis.runlog.reading import read_manifest
from analysis.runlog.writing import RunWriter, write_atomic
from drafters.serving.plan import ServingPlan, visits
from drafters.serving.trial import Trial


@dataclass(frozen=True)
class Record:
    """The folder of one experiment."""

    folder: Path

    @property
    def partial(self) -> Path:
        """Kept trials and server logs, until the experiment is complete."""
        return self.folder / ".partial"

    def begin(self, plan: ServingPlan, target: Target) -> bool:
        """Open the folder for ``plan``; False if it is complete already. Raises DataError if it holds another plan."""
        settings = plan.model_dump(mode="json")
        digest = settings_hash(settings)
        if (self.folder / MANIFEST).exists():
            manifest = read_manifest(str(self.folder))
            if (manifest.serving or {}).get("settings_sha256") != digest:
                raise DataError(
                    f"{self.folder}: holds a run with other settings; choose another name, or --run another folder"
                )
            return manifest.status != "complete"
        manifest = Manifest(
            name=self.folder.name,
            label=plan.name,
            created_by="drafters.throughput",
            target=target,
            serving={"settings": settings, "settings_sha256": digest},
        )
        write_atomic(self.folder / MANIFEST, manifest.to_json())
        return True

    def has(self, number: int) -> bool:
        """Whether that trial is kept."""
        return self._file(number).exists()

    def keep(self, trial: Trial) -> None:
        """Keep a trial, whole or not at all."""
        text = json.dumps({"row": trial.row, "requests": trial.requests}, allow_nan=False)
        write_atomic(self._file(trial.row["trial"]), text)

    def forget_failed(self) -> int:
        """Drop the failed trials that are kept, so that they run again; how many there were."""
        failed = [trial for trial in self.trials() if trial.row["status"] != DONE]
        for trial in failed:
            self._file(trial.row["trial"]).unlink()
        return len(failed)

    def trials(self) -> list[Trial]:
        """All kept trials, in order."""
        files = sorted((self.partial / "trials").glob("*.json"))
        return [Trial(data["row"], data["requests"]) for data in (json.loads(f.read_text("utf-8")) for f in files)]

    def finish(
        self, plan: ServingPlan, offline: Mapping[str, Any], environment: Environment, seconds: float
    ) -> Manifest:
        """Write the tables and close the manifest. Raises DataError if a trial is missing."""
        trials = self.trials()
        if len(trials) != len(visits(plan)) * len(plan.concurrency):
            raise DataError(f"{self.folder}: {len(trials)} trials are kept, not all of them; run the command again")
        writer = RunWriter.resume(self.folder)
        manifest = writer.manifest
        manifest.environment = environment
        manifest.serving = {**(manifest.serving or {}), "offline": dict(offline)}
        manifest.caveats = caveats(plan, trials)
        manifest.timings["serving_s"] = manifest.timings.get("serving_s", 0.0) + seconds
        writer.append("throughput", [trial.row for trial in trials])
        if requests := [row for trial in trials for row in trial.requests]:
            writer.append("requests", requests)
        writer.finish()
        # the servers' output stays where a trial failed, to look into
        failed = any(trial.row["status"] != DONE for trial in trials)
        shutil.rmtree(self.partial / "trials" if failed else self.partial)
        return manifest

    def _file(self, number: int) -> Path:
        return self.partial / "trials" / f"{number:04d}.json"


def caveats(plan: ServingPlan, trials: list[Trial]) -> list[str]:
    """What a reader of the trials has to know: order, failures, outputs that differ."""
    found = []
    if not plan.balanced:
        found.append(
            f"{plan.blocks} blocks of {len(plan.arms)} arms: the order is rotated but not balanced; "
            "a drift of the machine need not cancel"
        )
    failed = [trial.row for trial in trials if trial.row["status"] != DONE]
    if failed:
        arms = ", ".join(dict.fromkeys(row["arm"] for row in failed))
        found.append(f"{len(failed)} of {len(trials)} trials failed ({arms}); they are excluded from all means")
    if not plan.ignore_eos:
        found.append("answers end at the stop token (ignore_eos is off): arms may differ in output tokens")
    outputs: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for trial in trials:
        if trial.row["status"] == DONE:
            for row in trial.requests:
                outputs[row["prompt_id"]][trial.row["arm"]].add(row["output_hash"])
    unsteady = {arm for arms in outputs.values() for arm, hashes in arms.items() if len(hashes) > 1}
    if unsteady:
        found.append(f"outputs of {', '.join(sorted(unsteady))} differ between trials of the same arm")
    differing = sum(len(set.union(*arms.values())) > 1 for arms in outputs.values())
    if differing:
        found.append(f"{differing} of {len(outputs)} prompts have outputs that differ between trials or arms")
    return found
