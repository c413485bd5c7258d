"""A tenth of the campaign; `scripts/campaign` runs all of it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.kinds import KINDS

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        sys.platform != "linux", reason="the campaign reads /proc and sets Linux's limits"
    ),
]

ROOT = Path(__file__).parents[2]

Told = dict[str, list[dict[str, Any]]]
"""What became of the cases of each kind."""


def run(folder: Path, *options: str) -> Told:
    """Run the campaign in a process of its own, from which it forks."""
    report = folder / "report.json"
    command = [sys.executable, "-m", "tests.campaign", "--report", str(report), *options]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert report.exists(), process.stderr
    answers = json.loads(report.read_text())
    return {
        kind.name: [answer for answer in answers if answer["kind"] == kind.name] for kind in KINDS
    }


def failures(answers: list[dict[str, Any]]) -> list[str]:
    """The cases with faults, each with the command that repeats it."""
    return [
        f"scripts/campaign --kind {a['kind']} --seed {a['seed']} --only {a['number']}: "
        f"{a['label']}: {'; '.join(a['faults'])}"
        for a in answers
        if a["faults"]
    ]


def test_a_tenth_of_the_campaign_finds_no_fault(tmp_path: Path) -> None:
    found = run(tmp_path, "--tenth")
    assert all(len(found[kind.name]) >= kind.tenth for kind in KINDS)
    assert [failure for answers in found.values() for failure in failures(answers)] == []


def test_a_case_is_repeated_by_its_number(tmp_path: Path) -> None:
    given = ["--kind", "images", "--only", "3", "--only", "17"]
    first, again = (run(tmp_path, *given)["images"] for _ in range(2))
    assert {answer["number"] for answer in again} == {3, 17}
    for answers in (first, again):
        answers.sort(key=lambda answer: answer["number"])
    for one, other in zip(first, again, strict=True):
        assert (one["ended"], one["faults"]) == (other["ended"], other["faults"])
