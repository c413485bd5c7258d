import subprocess
import sys

import pytest

import captioning
from captioning.models import load


def test_load_is_at_hand_in_the_package() -> None:
    assert captioning.load is load


def test_importing_the_package_imports_nothing_heavy() -> None:
    script = "import captioning, sys; print({'torch', 'numpy', 'matplotlib'} & set(sys.modules))"
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert printed.stdout.strip() == "set()"


def test_a_name_that_the_package_lacks_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'unload'"):
        assert captioning.unload
