"""Hostile values: numbers, words, and paths of what is no plain file."""

import os
import shutil
import stat
from pathlib import Path
from random import Random

from tests.campaign.world import World

NUMBERS = (
    *("0", "-0", "-1", "1", "2", "3", "0.5", "1.5", "-0.5", "1e-320"),
    *("1e308", "-1e308", "1e400", "nan", "NaN", "inf", "-inf", "Infinity"),
    *(str(2**31), str(2**63), str(10**20), str(-(10**20)), "9" * 400, "9" * 5000),
    *("1_000", "0x10", "1e3", "\u0661\u0662", "\u00b2", "1,5", " 1", "1 ", "+1"),
)

WORDS = (
    *("", " ", "x", "null", "true", "no", "~", "-", "--", "@x", "%s", "{}", "[]", "[1, 2]"),
    *("\n", "a\nb", "\x1b[31mred", "\u202e", "\u00e9", "\u65e5\u672c", "\udcff", "a" * 5000),
    *("{a: b}", "{a: [", "&a [*a]", "*a", "? ", "!!float x", "!!python/name:os.system"),
    "!!python/object/apply:os.system ['touch executed']",
    "$(touch executed)",
    "; touch executed",
    "os.system",
    "builtins.exec",
    "captioning.search.BeamSearch",
    "captioning.captioner.Captioner",
    "captioning.no.such",
    "pytorch_lightning.Trainer",
    '{"class_path": "os.system", "init_args": {"command": "touch executed"}}',
    '{"class_path": "subprocess.getoutput", "init_args": {"cmd": "touch executed"}}',
)


class Given:
    """Files in a case's folder that are not as files usually are.

    Args:
        world: what is as it should be.
        folder: the case's.
    """

    def __init__(self, world: World, folder: Path) -> None:
        self.folder = folder / "given"
        self.folder.mkdir()
        (self.folder / "empty").touch()
        (self.folder / "folder").mkdir()
        (self.folder / "loop").symlink_to("loop")
        (self.folder / "text.txt").write_text("one\ntwo\n\nthree\n")
        (self.folder / "bytes").write_bytes(bytes(range(256)))
        # Copies: a command may be told to write over them, as users may be.
        plain = [Path(shutil.copy(file, self.folder)) for file in world.files]
        (self.folder / "link").symlink_to(plain[0])
        os.mkfifo(self.folder / "fifo")
        self.odd = [self.folder / "fifo", *self._devices()]
        self.paths = [
            *(str(self.folder / name) for name in ("empty", "folder", "loop", "link", "bytes")),
            *(str(self.folder / name) for name in ("missing", "missing/more", "text.txt")),
            *(str(self.folder / "empty" / "below"), str(self.folder / ("n" * 300)), "."),
            *(str(self.folder / "line\nbreak.jpg"), str(self.folder / "\x1b[31m.jpg")),
            *(str(self.folder / "\udce9.jpg"), *map(str, self.odd)),
            *(str(world.shapes), *map(str, plain)),
        ]

    def _devices(self) -> list[Path]:
        """A full device and one that never ends, which only root can make: in /dev, what renames
        files would do harm."""
        found = []
        for name, minor in (("full", 7), ("zero", 5)):
            try:
                os.mknod(self.folder / name, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
            except OSError:
                continue
            found.append(self.folder / name)
        return found

    def replaced(self) -> list[str]:
        """A fault for everything that is no plain file and was replaced by one."""
        return [
            f"other: {path.name} was replaced"
            for path in self.odd
            if not path.exists() or stat.S_ISREG(path.stat().st_mode)
        ]

    def value(self, random: Random) -> str:
        """Any value."""
        return random.choice(random.choice((NUMBERS, WORDS, self.paths)))
