"""A tenth of the campaign in every run of the suite, and all of it among the slow tests."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.kinds import KINDS

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the campaign reads /proc and sets Linux's limits"
)

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


@pytest.fixture(scope="module")
def tenth(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """A tenth of the campaign."""
    return run(tmp_path_factory.mktemp("tenth"), "--tenth")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The whole campaign."""
    return run(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_tenth_of_the_campaign_finds_no_fault(tenth: Told, kind: Any) -> None:
    assert len(tenth[kind.name]) >= kind.tenth
    assert failures(tenth[kind.name]) == []


@pytest.mark.integration
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_whole_campaign_finds_no_fault(whole: Told, kind: Any) -> None:
    assert len(whole[kind.name]) >= kind.whole
    assert failures(whole[kind.name]) == []


def test_a_case_is_repeated_by_its_number(tenth: Told, tmp_path: Path) -> None:
    again = run(tmp_path, "--kind", "images", "--only", "3", "--only", "17")["images"]
    assert {answer["number"] for answer in again} == {3, 17}
    first = {answer["number"]: answer for answer in tenth["images"]}
    for answer in again:
        same = first[answer["number"]]
        assert (answer["ended"], answer["faults"]) == (same["ended"], same["faults"])
