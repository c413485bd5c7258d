import shutil
from pathlib import Path

import pytest

from tests.serving.conftest import ask, held, photos  # noqa: F401


@pytest.fixture
def folder(tmp_path: Path, tiny_config: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder in which `marker` appears where anything is executed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    shutil.copy(tiny_config, "tiny.yaml")
    for name in ("hostile.py", "hubconf.py"):
        Path(name).write_text("open('marker', 'w').close()\n")
    Path("further.yaml").write_text("model: {decoder: os.system}")
    Path("hostile.pickle").write_bytes(b"cposix\nsystem\n(S'touch marker'\ntR.")
    return tmp_path
