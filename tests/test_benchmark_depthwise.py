import re

import pytest

from benchmarks.depthwise import table


def test_both_are_timed_and_compared() -> None:
    pytest.importorskip("timm", reason="timm is not installed")
    plain, kernel, ratio = map(float, re.findall(r"([\d.]+) (?:ms|times)", table(1, 1)))
    assert plain > 0
    assert ratio == pytest.approx(plain / kernel, rel=0.2)
