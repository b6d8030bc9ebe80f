"""Control groups with a limit, of version 2 or 1."""

import contextlib
import os
import pathlib
import shlex

V1 = {"memory.max": "memory.limit_in_bytes", "memory.peak": "memory.max_usage_in_bytes", "cpu.max": "cpu.cfs_quota_us"}


class Group:
    """A control group below this process's own or one of its parents. It exists while the `with` block runs."""

    def __init__(self, controller: str):
        self.controller = controller  # cpu or memory

    def __enter__(self) -> "Group":
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            self.is_v1 = self.controller in controllers.split(",")
            if not self.is_v1 and controllers:
                continue
            root = pathlib.Path("/sys/fs/cgroup") / (self.controller if self.is_v1 else "")
            own = root / path.lstrip("/")
            for parent in [own, *own.parents][: len(own.parts) - len(root.parts) + 1]:
                self.folder = parent / f"corelane-study-{os.getpid()}"
                with contextlib.suppress(OSError):
                    self.folder.mkdir()
                    if self.file(f"{self.controller}.max").exists():
                        return self
                    self.folder.rmdir()
        raise OSError(f"no control group with a limit on {self.controller} can be made here")

    def __exit__(self, *_) -> None:
        self.folder.rmdir()

    def file(self, name: str) -> pathlib.Path:
        return self.folder / (V1.get(name, name) if self.is_v1 else name)

    def limit_cores(self, cores: float, period_us: int = 100_000) -> None:
        if self.is_v1:
            (self.folder / "cpu.cfs_period_us").write_text(str(period_us))
        quota = int(cores * period_us)
        self.file("cpu.max").write_text(f"{quota}" if self.is_v1 else f"{quota} {period_us}")

    def limit_mib(self, mib: int) -> None:
        if (self.folder / "memory.swap.max").exists():
            (self.folder / "memory.swap.max").write_text("0")  # else it would be slow, and not end
        self.file("memory.max").write_text(str(mib << 20))

    def peak_mib(self) -> float:
        return int(self.file("memory.peak").read_text()) / (1 << 20)

    def join(self) -> str:
        """The shell command that puts the shell into the group."""
        return f"echo $$ > {shlex.quote(str(self.folder / 'cgroup.procs'))}"
