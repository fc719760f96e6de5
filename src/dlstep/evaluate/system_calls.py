"""The system calls that a program in a jail may make, as a filter for the kernel.

The list contains the calls that Python's standard library needs to compute, to write files and to
start processes. Every other call fails with ENOSYS, as on a kernel that lacks the call, so
libraries fall back to older calls. Not allowed are calls that reach beyond the jail (sockets,
keyrings, other processes' memory, mounts, namespaces) and calls that allocate memory which no limit
counts (shared memory segments, message queues, file locks, larger pipes, pages in pipes, io_uring).
"""

import ctypes
import errno
from tempfile import TemporaryFile

LIBRARY = "libseccomp.so.2"
ALLOWED = """
access alarm arch_prctl brk chdir chmod clock_getres clock_gettime clock_nanosleep close close_range copy_file_range creat dup
dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_wait execve exit exit_group faccessat faccessat2 fadvise64
fallocate fchdir fchmod fchmodat fdatasync fgetxattr flistxattr flock fork fstat fstatfs fsync ftruncate futex futimesat getcpu
getcwd getdents getdents64 getegid geteuid getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority
getrandom getresgid getresuid getrlimit getrusage getsid getsockname gettid gettimeofday getuid getxattr kill lgetxattr link
linkat listxattr llistxattr lseek lstat madvise membarrier mkdir mkdirat mmap mprotect mremap msync munmap nanosleep newfstatat
open openat openat2 pause pipe pipe2 poll ppoll pread64 preadv preadv2 pselect6 pwrite64 pwritev pwritev2 read readlink
readlinkat readv recvfrom rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask
rt_sigreturn rt_sigsuspend rt_sigtimedwait sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getparam
sched_getscheduler sched_yield select sendfile set_robust_list set_tid_address setitimer setpgid setrlimit setsid shutdown
sigaltstack stat statfs statx symlink symlinkat sysinfo tgkill time times tkill truncate umask uname unlink unlinkat utime
utimensat utimes vfork wait4 waitid write writev
"""
IN_32_BITS, NAMESPACES = 0xFFFFFFFF, 0x7E020000  # a mask, and flags of `clone` for namespaces
# Calls that are allowed for some arguments only: (index of the argument, mask, value). All
# conditions of a line must hold.
CONDITIONS = (
    ("clone", ((0, NAMESPACES, 0),)),
    *(("fcntl", ((1, IN_32_BITS, command),)) for command in (0, 1, 2, 3, 4, 1030, 1032)),  # no locks, no larger pipes
    *(("ioctl", ((1, IN_32_BITS, command),)) for command in (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)),
    *(("prctl", ((0, IN_32_BITS, option),)) for option in (15, 16)),  # the name of a thread
    ("prlimit64", ((0, IN_32_BITS, 0),)),  # for the calling process only
    # The event loop of asyncio wakes itself through such a pair. A pair is connected to nothing
    # else, and `sendto` is only allowed without an address.
    ("socketpair", ((0, IN_32_BITS, 1), (1, 0xF, 1))),
    ("sendto", ((4, (1 << 64) - 1, 0),)),
)
ALLOW, FAIL, KILL_PROCESS = 0x7FFF0000, 0x00050000 | errno.ENOSYS, 0x80000000  # from seccomp.h
WRONG_ARCHITECTURE, MASKED_EQUAL = 2, 7


class ArgumentCondition(ctypes.Structure):
    """A condition on an argument of a system call, `scmp_arg_cmp` of libseccomp."""

    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("mask", ctypes.c_uint64), ("value", ctypes.c_uint64))


def compiled_filter() -> bytes:
    """Return the filter as a kernel program, `struct sock_filter[]`.

    A 32-bit or x32 call kills the process. Raises ValueError if libseccomp is missing or fails.
    """
    try:
        seccomp = ctypes.CDLL(LIBRARY)
    except OSError:
        raise ValueError("libseccomp is not installed") from None
    seccomp.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(seccomp.seccomp_init(FAIL))
    seccomp.seccomp_attr_set(rules, WRONG_ARCHITECTURE, ctypes.c_uint32(KILL_PROCESS))
    for name, conditions in (*((name, ()) for name in ALLOWED.split()), *CONDITIONS):
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        compared = (ArgumentCondition * len(conditions))(
            *(ArgumentCondition(arg, MASKED_EQUAL, mask, value) for arg, mask, value in conditions)
        )
        # A call that this architecture lacks has a negative number.
        if number >= 0 and seccomp.seccomp_rule_add_array(rules, ctypes.c_uint32(ALLOW), number, len(conditions), compared):
            raise ValueError(f"libseccomp refuses a rule for {name}")
    with TemporaryFile() as file:
        failed = seccomp.seccomp_export_bpf(rules, file.fileno())
        seccomp.seccomp_release(rules)
        file.seek(0)
        program = file.read()
    if failed or not program:
        raise ValueError("libseccomp cannot write its filter")
    return program
