"""A first process around a submission: closes the file system, gives up rights, sets limits, waits.

Started as ``python -I cage.py PLAN`` inside the namespaces that ``isolation`` could make. Standard
library only. It ends when the submission's process ends, and takes everything that one started
with it. Numbers of the kernel interface are those of <sys/mount.h>, <linux/prctl.h>,
<linux/capability.h> and mount_setattr(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

MS_NOSUID, MS_NODEV = 2, 4
MOUNT_ATTR_RDONLY, AT_RECURSIVE, AT_FDCWD, SYS_MOUNT_SETATTR = 1, 0x8000, -100, 442
PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 4, 24, 36, 38
LAST_CAPABILITY = 63
CAPABILITY_VERSION_3 = 0x20080522
KILL_ROUNDS, PAUSE_S = 200, 0.01
NICENESS = 5  # the grader's watch must get its turn beside many busy processes

LIBC = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def _checked(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount_empty(folder: str, size_bytes: int) -> None:
    """Put an empty file system in memory over ``folder``."""
    options = f"size={size_bytes},mode=0755".encode()
    done = LIBC.mount(b"none", folder.encode(), b"tmpfs", MS_NOSUID | MS_NODEV, options)
    _checked(done, f"mount over {folder}")


def set_read_only(folder: str, *, recursive: bool, value: bool) -> None:
    """Switch the read-only flag of the mount at ``folder`` (and of all below it)."""
    attributes = _MountAttributes()
    attributes.set, attributes.clear = (MOUNT_ATTR_RDONLY, 0) if value else (0, MOUNT_ATTR_RDONLY)
    done = LIBC.syscall(
        SYS_MOUNT_SETATTR,
        AT_FDCWD,
        folder.encode(),
        AT_RECURSIVE if recursive else 0,
        ctypes.byref(attributes),
        ctypes.sizeof(attributes),
    )
    _checked(done, f"read-only {folder}")


def close_files(work: str, hide: list[str], disk_bytes: int) -> None:
    """One small writable folder, all else read-only, and what is in ``hide`` out of sight."""
    mount_empty(work, disk_bytes)
    if Path("/dev/shm").is_dir():
        mount_empty("/dev/shm", disk_bytes)
    for folder in hide:
        if Path(folder).is_dir():
            mount_empty(folder, 4096)
    set_read_only("/", recursive=True, value=True)
    for folder in (work, "/dev/shm"):
        if Path(folder).is_dir():
            set_read_only(folder, recursive=False, value=False)


def give_up_rights() -> None:
    """No capability now or later: what was closed cannot be opened again."""
    for number in range(LAST_CAPABILITY + 1):
        LIBC.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)  # fails beyond the kernel's last one
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    LIBC.capset(ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))
    LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def set_limits(limits: dict[str, Any], processes: int) -> None:
    """Limits of the kernel for the submission's process and all that it starts."""
    memory, cpu_s = int(limits["memory_bytes"]), max(1, round(limits["cpu_s"]))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 2))
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limits["disk_bytes"]),) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))


def children() -> list[int]:
    """Living children of this process; orphans of the submission are among them."""
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    except OSError:
        return []
    return [int(pid) for pid in text.split()]


def end_all() -> None:
    """Kill what is left until nothing is: a killed parent hands its children to us."""
    for _ in range(KILL_ROUNDS):
        for pid in children():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not children():
            return
        time.sleep(PAUSE_S)


def end_with_the_grader(life: int) -> None:
    """End everything when the other end of this pipe closes: the grader is gone, even if killed."""
    with contextlib.suppress(OSError):
        os.read(life, 1)
    end_all()
    os._exit(137)


def wait_for(pid: int) -> int:
    """Reap until ``pid`` ends: its exit code, or 128 plus its signal."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def start(plan: dict[str, Any]) -> int:
    """Fork, and become the submission's worker in the child. Returns the child's id."""
    for name in ("home", "cwd", "tmp"):
        (Path(plan["work"]) / name).mkdir(exist_ok=True)
    if pid := os.fork():
        for fd in plan["fds"]:
            os.close(fd)
        threading.Thread(target=end_with_the_grader, args=(plan["life"],), daemon=True).start()
        return pid
    os.close(plan["life"])
    os.setsid()
    os.nice(NICENESS)
    os.chdir(Path(plan["work"]) / "cwd")
    set_limits(plan["limits"], plan["processes"])
    os.execve(plan["command"][0], plan["command"], plan["environment"])


def main() -> int:
    """Exit code: that of the submission's process; 0 for a probe that could close the files."""
    plan = json.loads(sys.argv[1])
    with contextlib.suppress(OSError):  # when memory runs out, it is this one that ends
        Path("/proc/self/oom_score_adj").write_text("900")
    if plan["mounts"]:
        close_files(plan["work"], plan["hide"], plan["limits"]["disk_bytes"])
    give_up_rights()
    if plan.get("probe"):
        return 0
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    LIBC.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: (end_all(), os._exit(143)))
    code = wait_for(start(plan))
    end_all()
    return code


if __name__ == "__main__":
    sys.exit(main())
