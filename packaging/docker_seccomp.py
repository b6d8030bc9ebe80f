#!/usr/bin/env python3
"""Runs a command under a seccomp filter like Docker's default: the system calls that its documentation lists as blocked
fail with EPERM (https://docs.docker.com/engine/security/seccomp/), and so do io_uring's, which its profile
left out in version 25, and the newer ones that mount. clone3 fails with ENOSYS, as there, so that libc uses clone.

    packaging/docker_seccomp.py COMMAND...
"""

import ctypes
import os
import pathlib
import platform
import re
import struct
import sys

BLOCKED = """
    acct add_key bpf clock_adjtime clock_settime create_module delete_module finit_module fsconfig fsmount fsopen fspick
    get_kernel_syms get_mempolicy init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp
    kexec_file_load kexec_load keyctl lookup_dcookie mbind mount mount_setattr move_mount move_pages nfsservctl
    open_by_handle_at open_tree perf_event_open pivot_root process_vm_readv process_vm_writev ptrace query_module
    quotactl reboot request_key set_mempolicy setns settimeofday swapoff swapon sysfs _sysctl umount2 unshare uselib
    userfaultfd ustat
""".split()

EPERM, ENOSYS = 1, 38
# Flags of clone that make namespaces. (linux/sched.h)
NEW_NAMESPACES = 0x7E020000
# linux/filter.h and linux/seccomp.h.
LOAD, JUMP_EQUAL, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
ERRNO, ALLOW = 0x00050000, 0x7FFF0000
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
FIRST_ARGUMENT = 16  # in struct seccomp_data


def main() -> None:
    header = pathlib.Path(f"/usr/include/{platform.machine()}-linux-gnu/asm/unistd_64.h")
    numbers = {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)", header.read_text())}
    steps = [(LOAD, 0, 0, 0)]
    for name in BLOCKED:
        if name in numbers:
            steps += [(JUMP_EQUAL, 0, 1, numbers[name]), (RETURN, 0, 0, ERRNO | EPERM)]
    steps += [(JUMP_EQUAL, 0, 1, numbers["clone3"]), (RETURN, 0, 0, ERRNO | ENOSYS)]
    steps += [(JUMP_EQUAL, 0, 3, numbers["clone"]), (LOAD, 0, 0, FIRST_ARGUMENT)]
    steps += [(JUMP_ANY_BIT, 0, 1, NEW_NAMESPACES), (RETURN, 0, 0, ERRNO | EPERM), (RETURN, 0, 0, ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    for call in [(PR_SET_NO_NEW_PRIVS, 1), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(program))]:
        if prctl(*call, *[0] * (5 - len(call))) != 0:
            sys.exit(f"docker_seccomp.py: {os.strerror(ctypes.get_errno())}")
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
