"""The attributes of a contract: which Python values convert to their C types, and which of those are allowed."""

import functools
import math
import operator
import re
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

__all__ = ["Attr", "Bool", "Bools", "Double", "Float", "Int", "IntArray", "Str", "snake_case"]


def snake_case(name: str) -> str:
    """numTopk -> num_topk, aclnnGeluBackwardV2 -> gelu_backward_v2."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.removeprefix("aclnn")).lower()


@dataclass(frozen=True, eq=False)
class Attr:
    """An attribute parameter. `default` is what Python functions use when it is left out; `required` has none."""

    name: str
    default: Any = None
    required: bool = False
    alias: str = ""  # its name in formulas and rules
    code: int = 161002
    doc: str = ""
    ctype: ClassVar[str] = ""
    null_mend: ClassVar[str] = "Pass the array."

    @property
    def limited(self) -> bool:
        """Whether values of the C type are refused."""
        return True

    def refuses_null(self, superset: bool = False) -> int:
        """The code with which a null pointer is refused; 0 where it is accepted. `superset`: by the Python functions."""
        return 0

    @functools.cached_property
    def python(self) -> str:
        return snake_case(self.name.removesuffix("Optional"))

    def convert(self, value: Any, name: str, friendly: bool = False) -> Any:
        """To the C type; TypeError, about `name`, for Python types that have none. `friendly` also takes names of values."""
        raise NotImplementedError

    def violation(self, value: Any) -> str | None:
        """What a converted value should have been, if it is not allowed."""
        raise NotImplementedError

    @property
    def domain(self) -> str:
        """The allowed values in words."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Int(Attr):
    low: int | None = None
    high: int | None = None
    names: tuple[str, ...] = ()  # names of the values 0, 1, … for Python functions
    ctype: ClassVar[str] = "int64_t"

    def convert(self, value: Any, name: str, friendly: bool = False) -> Any:
        if friendly and self.names and isinstance(value, str):
            return self.names.index(value) if value in self.names else value  # which `violation` refuses
        try:
            return operator.index(value)
        except TypeError:
            wanted = self.domain if friendly and self.names else "an int"
            raise TypeError(f"{name} must be {wanted}; got {value!r} of type {type(value).__name__}") from None

    def violation(self, value: Any) -> str | None:
        low = -(2**63) if self.low is None else self.low
        high = 2**63 - 1 if self.high is None else self.high
        if isinstance(value, int) and low <= value <= high:
            return None
        beyond = isinstance(value, int) and value >= 2**63 and self.high is None and self.low is not None
        return f"{self.domain} and below 2**63" if beyond and not self.names else self.domain

    @property
    def domain(self) -> str:
        if self.names:
            return ", ".join(f"{value} ({name!r})" for value, name in enumerate(self.names))
        if self.low is not None and self.low == self.high:
            return f"{self.low}"
        if self.low is None and self.high is None:
            return "a 64-bit integer"
        if self.high is None:
            return f"at least {self.low}"
        return f"at most {self.high}" if self.low is None else f"from {self.low} to {self.high}"


@dataclass(frozen=True, eq=False)
class Bool(Attr):
    allowed: tuple[bool, ...] = (False, True)
    ctype: ClassVar[str] = "bool"

    def convert(self, value: Any, name: str, friendly: bool = False) -> Any:
        if isinstance(value, (bool, np.bool_)):
            return bool(value)
        try:
            return bool(operator.index(value))
        except TypeError:
            raise TypeError(f"{name} must be a bool; got {value!r} of type {type(value).__name__}") from None

    def violation(self, value: Any) -> str | None:
        return None if value in self.allowed else self.domain

    @property
    def domain(self) -> str:
        return " or ".join(str(value) for value in self.allowed)


@dataclass(frozen=True, eq=False)
class Float(Attr):
    low: float = -math.inf
    ctype: ClassVar[str] = "float"

    def convert(self, value: Any, name: str, friendly: bool = False) -> Any:
        if isinstance(value, (str, bytes)):
            raise TypeError(f"{name} must be a number; got {value!r}")
        try:
            return self.nearest(float(value)) + 0.0  # -0.0 is equal to 0.0, and no other number
        except TypeError:
            raise TypeError(f"{name} must be a number; got {value!r} of type {type(value).__name__}") from None
        except OverflowError:  # an int beyond float64
            return math.inf if value > 0 else -math.inf

    def nearest(self, number: float) -> float:
        """The nearest number of the C type."""
        with np.errstate(over="ignore", under="ignore"):
            return float(np.float32(number))

    def violation(self, value: Any) -> str | None:
        return None if value >= self.low else self.domain

    @property
    def domain(self) -> str:
        return "any number but NaN" if self.low == -math.inf else f"at least {self.low:g} and not NaN"


@dataclass(frozen=True, eq=False)
class Double(Float):
    ctype: ClassVar[str] = "double"

    def nearest(self, number: float) -> float:
        return number


@dataclass(frozen=True, eq=False)
class Str(Attr):
    choices: tuple[str, ...] = ()
    null: str | None = None  # what a null pointer stands for; without it null is refused
    ctype: ClassVar[str] = "char *"
    null_mend: ClassVar[str] = "Pass one of these strings."

    def refuses_null(self, superset: bool = False) -> int:
        return 161001 if self.null is None else 0

    def convert(self, value: Any, name: str, friendly: bool = False) -> Any:
        if value is None:
            return self.null
        if isinstance(value, str):
            return value
        if isinstance(value, bytes):
            return value.decode("utf-8", "backslashreplace")
        raise TypeError(f"{name} must be a str; got {value!r} of type {type(value).__name__}")

    def violation(self, value: Any) -> str | None:
        return None if value in self.choices else self.domain

    @property
    def domain(self) -> str:
        return " or ".join(repr(choice) for choice in self.choices)


@dataclass(frozen=True, eq=False)
class IntArray(Attr):
    """A list of at least `least` integers, none below `low`, or null unless `null_code` refuses it.

    With `null_superset` the Python functions take None all the same.
    """

    low: int = -(2**63)
    least: int = 0
    null_code: int = 0
    null_superset: bool = False
    ctype: ClassVar[str] = "const aclIntArray *"

    @property
    def limited(self) -> bool:
        return self.least > 0 or self.low > -(2**63) or self.null_code not in (0, 161001)

    def refuses_null(self, superset: bool = False) -> int:
        return 0 if superset and self.null_superset else self.null_code

    def convert(self, value: Any, name: str, friendly: bool = False) -> Any:
        if value is None:
            return None
        try:
            return tuple([operator.index(item) for item in value])
        except TypeError:
            none = "" if self.refuses_null(superset=True) else " or None"
            raise TypeError(f"{name} must be a list of ints{none}; got {value!r}") from None

    def violation(self, value: Any) -> str | None:
        fits = value is None or (len(value) >= self.least and all(self.low <= item < 2**63 for item in value))
        return None if fits else self.domain

    @property
    def domain(self) -> str:
        words = "64-bit integers" if self.low == -(2**63) else f"64-bit integers of at least {self.low}"
        words = f"{self.least} or more {words}" if self.least else words
        return words if self.refuses_null(superset=True) else f"{words}, or null"


@dataclass(frozen=True, eq=False)
class Bools(Attr):
    """A list of `size` booleans."""

    size: int = 1
    ctype: ClassVar[str] = "const aclBoolArray *"

    def refuses_null(self, superset: bool = False) -> int:
        return 161001

    def convert(self, value: Any, name: str, friendly: bool = False) -> Any:
        if value is None:
            return None
        try:
            return tuple([bool(item if isinstance(item, np.bool_) else operator.index(item)) for item in value])
        except TypeError:
            raise TypeError(f"{name} must be a list of bools; got {value!r}") from None

    def violation(self, value: Any) -> str | None:
        return None if value is not None and len(value) == self.size else self.domain

    @property
    def domain(self) -> str:
        return f"a list of {self.size} bools"
