"""Commands in children of this process, which has imported everything that they need.

Importing torch and Lightning takes seconds, a fork milliseconds. This process has one thread and
computes nothing itself, so that its children can.
"""

import atexit
import gc
import importlib
import os
import pkgutil
import resource
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tests.campaign.judge import MOST_PROCESSES, Outcome

SECONDS = 60.0
"""After which a command is a hang."""

MOST_DATA = 4 * 10**9
"""Bytes that a process is given at most, so that nothing takes the machine's memory."""

HEAVY = ("matplotlib.figure", "pycocotools.coco", "pycocotools.mask")
"""What commands import besides the package itself."""


def warm_up() -> None:
    """Import what commands import, without starting threads; shut the network but for loopback."""
    import torch
    from PIL import Image

    import captioning

    ours = (module.name for module in pkgutil.walk_packages(captioning.__path__, "captioning."))
    for name in (*HEAVY, *ours):
        importlib.import_module(name)

    Image.preinit()
    torch.set_num_threads(1)
    gc.freeze()  # else each child's first collection copies all that is imported
    if (threads := len(list(Path("/proc/self/task").iterdir()))) != 1:
        raise RuntimeError(f"{threads} threads are running, and a fork has only one of them")
    _shut_network()


@dataclass(frozen=True)
class Call:
    """A command to be run in a child.

    Attributes:
        arguments: of the command line.
        before: done in the child before the command.
        instead: done in the child instead of the command; returns an exit code.
        seconds: after which it is a hang.
        kill_after: seconds after which it is killed.
        interrupt_at: what it prints when it is to be interrupted, such as a server's address.
        file_bytes: most bytes of a file; more are "File too large", as on a full disk.
        open_files: most files and connections that it may have open.
        stdout: where it prints to, such as a full device; a file of the case if none.
        encoding: of stdout.
    """

    arguments: Sequence[str] = ()
    before: Callable[[], object] | None = None
    instead: Callable[[], int] | None = None
    seconds: float | None = None
    kill_after: float | None = None
    interrupt_at: str | None = None
    file_bytes: int | None = None
    open_files: int | None = None
    stdout: str | None = None
    encoding: str = "utf-8"


class Child:
    """A command that is running.

    Args:
        call: the command.
        folder: the case's; the command's working folder.
        seconds: after which it is a hang, unless the call says.
        name: of this command among several at once.
    """

    def __init__(
        self, call: Call, folder: Path, seconds: float = SECONDS, name: str = "first"
    ) -> None:
        self.call = call
        self.limit = call.seconds or seconds
        logs = folder.with_name(f"{folder.name}.logs")
        logs.mkdir(exist_ok=True)
        self.out, self.err = logs / f"{name}.out", logs / f"{name}.err"
        for log in (self.out, self.err):  # also of a child that is killed before it opens them
            log.write_bytes(b"")
        self.most = 1
        self.stopped = ""
        self.begun = self.looked = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _in_child(call, folder, self.out, self.err)

    def outcome(self) -> Outcome | None:
        """What became of it; none while it is running."""
        pid, status, used = os.wait4(self.pid, os.WNOHANG)
        seconds = time.monotonic() - self.begun
        if pid == 0:
            self._watch(seconds)
            return None
        _kill(self.pid)  # what it may have left running
        return Outcome(
            code=os.waitstatus_to_exitcode(status),
            out=self.out.read_text(encoding="utf-8", errors="backslashreplace"),
            err=self.err.read_text(encoding="utf-8", errors="backslashreplace"),
            seconds=seconds,
            memory=used.ru_maxrss * 1024,
            processes=self.most,
            stopped=self.stopped,
        )

    def _watch(self, seconds: float) -> None:
        if self.stopped in ("limit", "crowd", "kill"):
            return
        call = self.call
        if call.kill_after is not None and seconds > call.kill_after:
            self._end("kill")
        elif seconds > self.limit:
            self._end("limit")
        elif (now := time.monotonic()) - self.looked > 0.1:
            self.looked = now
            self.most = max(self.most, len(_session(self.pid)))
            if self.most > MOST_PROCESSES:
                self._end("crowd")
            elif (
                call.interrupt_at is not None
                and not self.stopped
                and call.interrupt_at in self.out.read_text(errors="replace")
            ):
                self.stopped = "interrupt"
                os.kill(self.pid, signal.SIGINT)

    def _end(self, reason: str) -> None:
        self.stopped = reason
        _kill(self.pid)


def _session(pid: int) -> list[int]:
    """The processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            if int(fields[3]) == pid and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def _kill(session: int) -> None:
    for pid in _session(session):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _in_child(call: Call, folder: Path, out: Path, err: Path) -> NoReturn:
    code = 1
    try:
        _begin(call, folder, out, err)
        code = _done(call)
    except BaseException:  # as Python itself would tell of it
        traceback.print_exc()
    finally:
        try:
            code = _end(code)
        finally:  # also after a signal that comes late, which must not unwind the campaign itself
            os._exit(code)


def _begin(call: Call, folder: Path, out: Path, err: Path) -> None:
    atexit._clear()  # those inherited would remove the temporary folders of the campaign itself
    os.setsid()
    os.chdir(folder)
    write = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    to = out if call.stdout is None else call.stdout
    for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, to, write), (2, err, write)):
        opened = os.open(path, flags, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for good
    sys.stdout = open(1, "w", encoding=call.encoding, closefd=False)  # noqa: SIM115
    sys.stderr = open(  # noqa: SIM115
        2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False
    )
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.default_int_handler if name == signal.SIGINT else signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_DATA, MOST_DATA))
    if call.open_files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (call.open_files, call.open_files))
    if call.file_bytes is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (call.file_bytes, call.file_bytes))


def run(arguments: Sequence[str]) -> int:
    """Run a command as `python -m captioning` does, its handlers of signals included."""
    import captioning.__main__ as program

    sys.argv = [str(program.__file__), *arguments]
    sys.modules["__main__"] = program  # which processes that it starts run, too
    return program.main()


def _done(call: Call) -> int:
    if call.before is not None:
        call.before()
    try:
        return run(call.arguments) if call.instead is None else call.instead()
    except SystemExit as exit:
        if exit.code is None or isinstance(exit.code, int):
            return exit.code or 0
        print(exit.code, file=sys.stderr)
        return 1


def _end(code: int) -> int:
    """As Python ends: wait for threads, write out what is buffered."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        print("Exception ignored: stdout cannot be flushed", file=sys.stderr)
        code = 120
    sys.stderr.flush()
    return code


def _shut_network() -> None:
    """Let sockets of this process and its children reach nothing but this machine."""
    connect, lookup = socket.socket.connect, socket.getaddrinfo
    here = ("127.0.0.1", "::1", "localhost")

    def only_here(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple) and address[0] not in here:
            raise OSError(101, "Network is unreachable")
        connect(self, address)

    def only_names_of_here(host: Any, *arguments: Any, **settings: Any) -> Any:
        if host not in (*here, "", None):
            raise socket.gaierror(-2, "Name or service not known")
        return lookup(host, *arguments, **settings)

    socket.socket.connect = only_here  # type: ignore[assignment, method-assign]
    socket.getaddrinfo = only_names_of_here
