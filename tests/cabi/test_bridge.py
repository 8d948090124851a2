"""The bodies of the C functions over calls that are made up here: what reaches the device and what comes back."""

import pytest
from cffi import FFI

from anycann import device
from anycann.cabi import bridge, declarations, glue
from anycann.errors import AclnnError

FUNCTIONS = {function.name: function for function in declarations.every_function([])}


class Library:
    """Stands for the helpers of the compiled library."""

    def __init__(self, ffi):
        self.ffi, self.made = ffi, []

    def anycann_new_array(self, count):
        self.made.append(self.ffi.new("int64_t[]", count))
        return self.made[-1]


class Calls:
    """One C function, the call behind it, and what the call was given."""

    def __init__(self):
        self.ffi = FFI()
        self.given = []

    def body(self, name, result=None, function=None):
        def call(*arguments):
            self.given.append(arguments)
            if isinstance(result, Exception):
                raise result
            return result

        function = function or FUNCTIONS[name]
        return bridge.bodies(self.ffi, Library(self.ffi), {name: call}, (function,))[name]


@pytest.fixture
def calls():
    device.recent()
    return Calls()


def test_results_go_where_the_pointers_point(calls):
    pointer = calls.ffi.new("uintptr_t *", 7)
    assert calls.body("aclrtMalloc", 4096)(pointer, 100, 2) == 0
    assert (calls.given, pointer[0]) == ([(100, 2)], 4096)
    first, second, third = (calls.ffi.new("int32_t *") for _ in range(3))
    assert calls.body("aclrtGetVersion", (1, 2, 3))(first, second, third) == 0
    assert (first[0], second[0], third[0]) == (1, 2, 3)


WRITING = [function for function in FUNCTIONS.values() if any(param.kind in ("out", "new array") for param in function.params)]


@pytest.mark.parametrize("function", WRITING, ids=lambda function: function.name)
def test_null_result_pointers_are_refused_before_the_call(calls, function):
    body = calls.body(function.name, AclnnError(161002, function.name, "called"))
    outs = [place for place, param in enumerate(function.params) if param.kind in ("out", "new array")]
    for null in outs:
        arguments = [calls.ffi.NULL if place == null else 1 for place in range(len(function.params))]
        assert body(*arguments) == {"aclError": 100000, "aclnnStatus": 161001}[function.result]
        assert f"{function.name}: {function.params[null].name} must point to memory for a result; got a null pointer." in device.recent()
    assert calls.given == []


def test_a_refusal_writes_nothing_and_is_remembered(calls):
    pointer = calls.ffi.new("uintptr_t *", 7)
    refusal = AclnnError(207001, "aclrtMalloc", "too much")
    assert calls.body("aclrtMalloc", refusal)(pointer, 1, 0) == 207001
    assert pointer[0] == 7
    assert device.recent() == "aclrtMalloc: too much [ACL_ERROR_RT_MEMORY_ALLOCATION 207001]"
    assert calls.body("aclCreateIntArray", refusal)(calls.ffi.NULL, 0) == 0
    assert calls.body("aclrtGetSocName", refusal)() == calls.ffi.NULL


@pytest.mark.parametrize(
    ("name", "arguments", "answer"), [("aclrtFree", (1,), 507000), ("aclDestroyTensor", (1,), 561000), ("aclCreateScalar", (1, 2), 0)]
)
def test_a_fault_of_our_own_is_told_from_a_refusal(calls, capsys, name, arguments, answer):
    assert calls.body(name, ZeroDivisionError("oops"))(*arguments) == answer
    assert "ZeroDivisionError: oops" in capsys.readouterr().err
    assert f"{name}: anycann itself failed with ZeroDivisionError('oops')" in device.recent()


def test_arrays_reach_the_device_as_tuples(calls):
    dims, strides = calls.ffi.new("int64_t[]", [2, 3]), calls.ffi.new("int64_t[]", [3, 1])
    create = calls.body("aclCreateTensor", 99)
    assert create(dims, 2, 0, strides, 5, 2, dims, 1, 4096) == 99
    assert create(dims, 2, 0, calls.ffi.NULL, 0, 2, calls.ffi.NULL, 1, 0) == 99
    assert create(calls.ffi.NULL, 0, 0, calls.ffi.NULL, 0, 2, calls.ffi.NULL, 0, 0) == 99
    assert calls.given == [((2, 3), 0, (3, 1), 5, 2, (2,), 4096), ((2, 3), 0, None, 0, 2, None, 0), ((), 0, None, 0, 2, (), 0)]
    calls.given.clear()
    init = calls.body("aclInitTensor")
    assert init(7, dims, 2, 0, strides, 5, 2, dims, 1, 4096) == 0
    assert calls.given == [(7, (2, 3), 0, (3, 1), 5, 2, (2,), 4096)]
    calls.given.clear()
    flags = calls.body("aclCreateBoolArray", 1)
    assert flags(calls.ffi.new("uint8_t[]", [0, 1, 200]), 3) == 1
    assert flags(calls.ffi.NULL, 3) == 1
    assert calls.given == [((False, True, True),), (None,)]
    calls.given.clear()
    calls.body("aclCreateTensorList", 1)(calls.ffi.new("uintptr_t[]", [5, 0, 6]), 3)
    calls.body("aclCreateFloatArray", 1)(calls.ffi.new("float[]", [0.5]), 1)
    assert calls.given == [((5, 0, 6),), ((0.5,),)]


@pytest.mark.parametrize(
    ("name", "place", "least", "said"),
    [
        ("aclCreateTensor", 1, 65, "viewDimsNum must be at most 64; got"),
        ("aclCreateTensor", 7, 65, "storageDimsNum must be at most 64; got"),
        ("aclCreateIntArray", 1, 2**24 + 1, "size must be at most 16777216; got"),
    ],
)
def test_absurd_counts_are_refused_before_memory_is_read(calls, name, place, least, said):
    body = calls.body(name, 1)
    for count in (least, 2**60, 2**64 - 1):
        arguments = [
            count if at == place else calls.ffi.cast("int64_t *", 8) if param.kind == "array" else 0
            for at, param in enumerate(FUNCTIONS[name].params)
        ]
        if place == 7:
            arguments[0] = calls.ffi.NULL
        assert body(*arguments) == 0
        assert f"{name}: {said} {count}." in device.recent()
    assert calls.given == []


def test_strings(calls):
    init = calls.body("aclInit")
    for text in (b"", b"a.json", "ä".encode(), b"\xff!"):
        assert init(calls.ffi.new("char[]", text)) == 0
    assert init(calls.ffi.NULL) == 0
    assert calls.given == [("",), ("a.json",), ("ä",), ("\\xff!",), (None,)]
    read = calls.body("aclGetRecentErrMsg", "grün")
    assert calls.ffi.string(read()).decode() == "grün"
    assert calls.body("aclGetRecentErrMsg", None)() == calls.ffi.NULL
    name = calls.body("aclrtGetSocName", "Ascend910B1")
    assert name() == name()
    assert calls.ffi.string(name()) == b"Ascend910B1"


def test_shapes_come_in_memory_of_their_own(calls):
    dims, count = calls.ffi.new("int64_t **"), calls.ffi.new("uint64_t *")
    get = calls.body("aclGetViewShape", ((2, 0, 5), 3))
    assert get(7, dims, count) == 0
    assert (list(dims[0][0:3]), count[0], calls.given) == ([2, 0, 5], 3, [(7,)])
    first = dims[0]
    assert get(7, dims, count) == 0
    assert dims[0] != first
    assert calls.body("aclGetViewShape", ((), 0))(7, dims, count) == 0
    assert (dims[0] != calls.ffi.NULL, count[0]) == (True, 0)


def test_values(calls):
    assert calls.body("aclFloat16ToFloat", 0.5)(14336) == 0.5
    assert calls.body("aclDataTypeSize", 4)(0) == 4
    assert calls.body("aclGetDataBufferAddr", 4096)(7) == 4096
    assert calls.given == [(14336,), (0,), (7,)]


def test_both_phases(calls):
    text = """
    ANYCANN_API aclnnStatus aclnnOneGetWorkspaceSize(const aclTensor *x, char *mode, bool flag, double eps, const aclBoolArray *mask,
                                                     aclTensor *y, uint64_t *workspaceSize, aclOpExecutor **executor);
    ANYCANN_API aclnnStatus aclnnOne(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);"""
    first, second = declarations.parse(text)
    size, executor = calls.ffi.new("uint64_t *", 1), calls.ffi.new("uintptr_t *", 1)
    assert calls.body(first.name, (64, 8), first)(5, calls.ffi.new("char[]", b"tanh"), 1, 0.5, 0, 6, size, executor) == 0
    assert (size[0], executor[0]) == (64, 8)
    assert calls.body(second.name, None, second)(4096, 64, 8, 0) == 0
    assert calls.given == [(5, "tanh", True, 0.5, 0, 6), (4096, 64, 8, 0)]
    refusal = AclnnError(161002, first.name, "no")
    assert calls.body(first.name, refusal, first)(5, calls.ffi.NULL, 1, 0.5, 0, 6, size, executor) == 161002
    assert (size[0], executor[0]) == (64, 8)
    for null in ((calls.ffi.NULL, executor), (size, calls.ffi.NULL)):
        assert calls.body(first.name, (64, 8), first)(5, calls.ffi.NULL, 1, 0.5, 0, 6, *null) == 161001


def test_what_crosses():
    text = glue.cdef(declarations.every_function([]))
    for line in (
        "int32_t anycann_py_aclrtMalloc(uintptr_t *, size_t, int32_t);",
        "int32_t anycann_py_aclrtCreateStream(uintptr_t *);",
        "int32_t anycann_py_aclrtMemcpy(uintptr_t, size_t, uintptr_t, size_t, int32_t);",
        "uintptr_t anycann_py_aclCreateTensorList(const uintptr_t *, uint64_t);",
        "uintptr_t anycann_py_aclCreateBoolArray(const uint8_t *, uint64_t);",
        "int32_t anycann_py_aclGetFormat(uintptr_t, int32_t *);",
        "int32_t anycann_py_aclGetViewShape(uintptr_t, int64_t **, uint64_t *);",
        "const char * anycann_py_aclGetRecentErrMsg(void);",
        "uint16_t anycann_py_aclFloatToFloat16(float);",
        "int32_t anycann_py_aclInit(const char *);",
    ):
        assert f"    {line}\n" in text
    FFI().cdef(text)


class Door:
    """Stands for the compiled module: notes what is put in place."""

    NULL = None

    def __init__(self):
        self.bodies = {}

    def def_extern(self, name, error):
        return lambda body: self.bodies.__setitem__(name, (body, error))


def test_libraries_of_other_versions():
    functions = declarations.every_function([])
    door = Door()
    bridge.start(door, None, glue.interface(functions[3:]))  # a library that knows less
    assert set(door.bodies) == {glue.entry(function) for function in functions[3:]}
    assert door.bodies["anycann_py_aclrtFree"][1] == 507000
    assert door.bodies["anycann_py_aclCreateTensor"][1] == 0
    with pytest.raises(
        RuntimeError, match=r"built by another version of anycann .* has no int32_t anycann_py_x\(void\); Build the program"
    ):
        bridge.start(Door(), None, "int32_t anycann_py_x(void);")
