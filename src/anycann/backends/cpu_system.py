"""For kernels: words that threads share, how threads round, and what the operating system does with them.

Words are 64 bits; all threads see their changes in one order. Mutexes and conditions take up to 64 bytes each.
"""

from llvmlite import ir
from numba import types

from anycann.backends.cpu_llvm import I8, I32, I64, Emit, Value, operation

__all__ = [
    "CORES", "add_to_word", "await_signal", "enter_python", "exchange_word", "give_back", "leave_python", "lock", "new_condition",
    "new_mutex", "own_cores", "own_floats", "pause", "python_int", "read_word", "reserve", "set_cores", "signal", "unlock", "usual_floats",
    "write_word", "yield_core",
]  # fmt: skip

CORES = 128  # bytes of a set of cores
_INTP = types.intp
_MXCSR, _CONTROL = 0x1F80, 0xFFC0  # of x86: the usual control word, and all but the flags of it


def _cell(e: Emit, address: Value) -> Value:
    return e.b.inttoptr(address, I64.as_pointer())


@operation(_INTP, _INTP)
def read_word(e: Emit, address: Value) -> Value:
    """The word that all threads see."""
    return e.b.load_atomic(_cell(e, address), "seq_cst", 8, typ=I64)


@operation(types.void, _INTP, _INTP)
def write_word(e: Emit, address: Value, value: Value) -> None:
    """Let all threads see this value."""
    e.b.store_atomic(value, _cell(e, address), "seq_cst", 8)


@operation(_INTP, _INTP, _INTP)
def add_to_word(e: Emit, address: Value, value: Value) -> Value:
    """Add to a word; what it was before."""
    return e.b.atomic_rmw("add", _cell(e, address), value, "seq_cst")


@operation(types.boolean, _INTP, _INTP, _INTP)
def exchange_word(e: Emit, address: Value, expected: Value, value: Value) -> Value:
    """Write a word if it is what is expected, and whether it was."""
    return e.b.extract_value(e.b.cmpxchg(_cell(e, address), expected, value, "seq_cst", "seq_cst"), 1)


@operation(types.void)
def pause(e: Emit) -> None:
    """Let the other half of the core go first."""
    if _machine(e) == "x86":
        e.call("llvm.x86.sse2.pause", ir.VoidType())
    elif _machine(e) == "arm":
        e.call("llvm.aarch64.hint", ir.VoidType(), I32(1))


def _system(e: Emit, name: str, *addresses: Value) -> None:
    """Call a function of the operating system."""
    e.call(name, I32, *(e.b.inttoptr(address, I8.as_pointer()) for address in addresses))


@operation(_INTP, _INTP)
def reserve(e: Emit, size: Value) -> Value:
    """The address of so many bytes, until `give_back`. Stacks of threads may be small."""
    return e.b.ptrtoint(e.call("malloc", I8.as_pointer(), size), I64)


@operation(types.void, _INTP)
def give_back(e: Emit, address: Value) -> None:
    """End the use of memory; 0 is none."""
    e.call("free", ir.VoidType(), e.b.inttoptr(address, I8.as_pointer()))


def _machine(e: Emit) -> str:
    triple: str = e.context.codegen().magic_tuple()[0]
    return "x86" if triple.startswith(("x86_64", "i686")) else "arm" if triple.startswith(("aarch64", "arm64")) else triple


def _set_floats(e: Emit, word: Value) -> None:
    if _machine(e) == "x86":
        with e.b.goto_entry_block():
            cell = e.b.alloca(I32)
        e.b.store(e.b.trunc(word, I32), cell)
        e.call("llvm.x86.sse.ldmxcsr", ir.VoidType(), e.b.bitcast(cell, I8.as_pointer()))
    else:
        e.call("llvm.aarch64.set.fpcr", ir.VoidType(), word)


def _unusual(e: Emit, word: Value) -> Value:
    """Whether a control word does other than round to nearest, keep subnormal numbers and trap nothing; its flags do not count."""
    return e.b.icmp_unsigned("!=", e.b.and_(word, I64(_CONTROL if _machine(e) == "x86" else -1)), I64(_usual_word(e)))


def _usual_word(e: Emit) -> int:
    return _MXCSR if _machine(e) == "x86" else 0


@operation(_INTP)
def usual_floats(e: Emit) -> Value:
    """Round to nearest, keep subnormal numbers and trap nothing from now on, whatever the thread has chosen; that, for `own_floats`."""
    if _machine(e) == "x86":
        with e.b.goto_entry_block():
            cell = e.b.alloca(I32)
        e.call("llvm.x86.sse.stmxcsr", ir.VoidType(), e.b.bitcast(cell, I8.as_pointer()))
        word = e.b.zext(e.b.load(cell), I64)
    elif _machine(e) == "arm":
        word = e.call("llvm.aarch64.get.fpcr", I64)
    else:
        return I64(0)
    with e.b.if_then(_unusual(e, word), likely=False):
        _set_floats(e, I64(_usual_word(e)))
    return word


@operation(types.void, _INTP)
def own_floats(e: Emit, word: Value) -> None:
    """Compute as the thread has chosen again."""
    if _machine(e) in ("x86", "arm"):
        with e.b.if_then(_unusual(e, word), likely=False):
            _set_floats(e, word)


@operation(types.void)
def yield_core(e: Emit) -> None:
    """Let other threads of this core run."""
    _system(e, "sched_yield")


@operation(types.void, _INTP)
def new_mutex(e: Emit, mutex: Value) -> None:
    """Make a mutex of memory."""
    _system(e, "pthread_mutex_init", mutex, I64(0))


@operation(types.void, _INTP)
def new_condition(e: Emit, condition: Value) -> None:
    """Make a condition of memory."""
    _system(e, "pthread_cond_init", condition, I64(0))


@operation(types.void, _INTP)
def lock(e: Emit, mutex: Value) -> None:
    """Wait for a mutex and take it."""
    _system(e, "pthread_mutex_lock", mutex)


@operation(types.void, _INTP)
def unlock(e: Emit, mutex: Value) -> None:
    """Give a mutex back."""
    _system(e, "pthread_mutex_unlock", mutex)


@operation(types.void, _INTP, _INTP)
def await_signal(e: Emit, condition: Value, mutex: Value) -> None:
    """Sleep until a signal, without the lock; sometimes without one."""
    _system(e, "pthread_cond_wait", condition, mutex)


@operation(types.void, _INTP)
def signal(e: Emit, condition: Value) -> None:
    """Wake a thread that awaits the condition."""
    _system(e, "pthread_cond_signal", condition)


@operation(_INTP)
def leave_python(e: Emit) -> Value:
    """Give the interpreter's lock away, for `enter_python`. A function that keeps it calls this."""
    return e.b.ptrtoint(e.call("PyEval_SaveThread", I8.as_pointer()), I64)


@operation(types.void, _INTP)
def enter_python(e: Emit, state: Value) -> None:
    """Wait for the interpreter's lock."""
    e.call("PyEval_RestoreThread", ir.VoidType(), e.b.inttoptr(state, I8.as_pointer()))


@operation(_INTP, _INTP)
def python_int(e: Emit, number: Value) -> Value:
    """The value of a Python int modulo 2**64, by the address of the object."""
    return e.call("PyLong_AsUnsignedLongLongMask", I64, e.b.inttoptr(number, I8.as_pointer()))


def _linux(e: Emit) -> bool:
    return "linux" in e.context.codegen().magic_tuple()[0]


@operation(_INTP, _INTP)
def own_cores(e: Emit, cores: Value) -> Value:
    """Write a bit for each core that may run this thread into CORES bytes; the one that does, or -1 where the system does not tell."""
    if not _linux(e):
        return I64(-1)
    failed = e.call("sched_getaffinity", I32, I32(0), I64(CORES), e.b.inttoptr(cores, I8.as_pointer()))
    core = e.b.sext(e.call("sched_getcpu", I32), I64)
    return e.b.select(e.b.icmp_signed("<", failed, I32(0)), I64(-1), core)


@operation(types.void, _INTP, _INTP)
def set_cores(e: Emit, thread: Value, cores: Value) -> None:
    """Say which cores may run a thread."""
    if _linux(e):
        e.call("sched_setaffinity", I32, e.b.trunc(thread, I32), I64(CORES), e.b.inttoptr(cores, I8.as_pointer()))
