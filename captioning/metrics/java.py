"""METEOR 1.5 and SPICE 1.0 by their authors' own Java programs, which pycocoevalcap brings.

There is no other implementation of them here: without Java there are no such scores.
"""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from captioning.errors import InputError

SETTINGS = ("-Dfile.encoding=UTF-8", "-Duser.language=en", "-Duser.country=US")
"""Whatever the machine's locale: METEOR cannot read its own numbers where commas are decimal."""


def java(metric: str) -> str:
    """The path of the Java that runs a metric: that of JAVA_HOME, or else the first on the PATH.

    Raises:
        InputError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise InputError(
            f"{metric} needs Java, and there is no `java` {where}; install a Java runtime, "
            f"or leave {metric} out"
        )
    return found


def java_version(metric: str) -> int:
    """The major version of that Java: 8, 11, 17, ...

    Raises:
        InputError: there is no Java, or it does not run.
    """
    told = subprocess.run(
        [java(metric), "-version"], capture_output=True, text=True, errors="replace"
    ).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', told)
    if version is None:
        raise InputError(
            f"{metric} needs Java, and {java(metric)} does not run "
            f"({last_line(told)}); install a Java runtime, or leave {metric} out"
        )
    return int(version[1])


def program(metric: str, jar: str) -> Path:
    """The path of one of pycocoevalcap's programs.

    Raises:
        InputError: pycocoevalcap is not installed.
    """
    package = find_spec("pycocoevalcap")
    for folder in package.submodule_search_locations or () if package else ():
        if (Path(folder) / jar).is_file():
            return Path(folder) / jar
    raise InputError(
        f"{metric} needs pycocoevalcap, which brings its program; `pip install pycocoevalcap`, "
        f"or leave {metric} out"
    )


def last_line(text: str) -> str:
    """The last line of what a program told, which says most where it failed."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no reason")
