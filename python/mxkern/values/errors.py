# mxkern/values/errors.py: the sentences of the package's errors: function, argument, got, wanted,
# way out.
from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from mxkern.values.value import Value


def listed(names: Iterable[str]) -> str:
    """'a', 'a or b', 'a, b or c'."""
    *first, last = [str(name) for name in names]
    return f"{', '.join(first)} or {last}" if first else last


def described(value: Any) -> str:
    """A value for a message: its repr, cut short, or its type where a repr would not help."""
    if type(value) is tuple:
        return _cut(f"({', '.join(map(described, value))}{',' if len(value) == 1 else ''})")
    if isinstance(value, int) and value.bit_length() > 256:  # Python prints no more of some
        return f"an int of {value.bit_length()} bits"
    if isinstance(value, (str, int, float, bool, tuple, Value, type(None))):
        text = repr(value).split("\n", 1)[0]
        return _cut(text)
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace("a builtins.", "a ")


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def unknown_name(
    function: str,
    argument: str,
    got: Any,
    valid: Iterable[str],
    aliases: Iterable[str] = (),
    meant: Iterable[str] = (),
) -> Exception:
    """The error for a name that is not among the valid ones; says which ones are nearest. meant:
    those that fit what is no name."""
    valid = list(valid)
    if not isinstance(got, str):
        near = [repr(name) for name in meant]
        way_out = f"; did you mean {listed(near)}?" if near else ""
        return TypeError(
            f"{function}: {argument} is {described(got)}; expected a name: {listed(valid)}{way_out}"
        )
    import difflib

    name = got.lower().replace("-", "_")
    near = difflib.get_close_matches(name, [*aliases, *valid], n=4, cutoff=0.4)
    likeness = [difflib.SequenceMatcher(None, other, name).ratio() for other in near]
    nearest = sorted(repr(near[i]) for i in range(len(near)) if likeness[i] == likeness[0])
    way_out = f"; did you mean {listed(nearest)}?" if nearest else ""
    return ValueError(
        f"{function}: {argument} is {described(got)}; expected {listed(valid)}{way_out}"
    )


def not_packed(function: str, scheme: str) -> ValueError:
    """The error for a scheme without packed codes."""
    return ValueError(
        f"{function}: scheme is {scheme!r}, whose codes are one a byte already; expected a scheme "
        "of 4 or 6 bits"
    )


def integer(function: str, argument: str, value: Any, low: int, high: int) -> int:
    """value as an int in [low, high]."""
    number: int = value if type(value) is int else _as_int(function, argument, value)
    if not low <= number <= high:
        raise out_of_range(function, argument, number, low, high)
    return number


def _as_int(function: str, argument: str, value: Any) -> int:
    wanted = f"{function}: {argument} is {described(value)}; expected an int"
    other = ", or count in offset, which may be an array" if argument == "seed" else ""
    if argument == "seed" and (way_out := _way_to_seed(value)):
        raise TypeError(wanted + way_out)
    if is_traced(value):
        raise TypeError(f"{wanted}; name it in static_argnums of jax.jit{other}")
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(wanted)
    if hasattr(value, "__cuda_array_interface__"):
        raise TypeError(
            f"{function}: {argument} is {described(value)} on a CUDA device, and reading it would "
            f"wait for the device; expected an int; pass int({argument}), which waits{other}"
        )
    try:
        return int(value.__index__())
    except TypeError:  # arrays of more than one element
        raise TypeError(wanted) from None


# What draws random numbers, by a method of its own: a call that draws a seed.
_DRAWS = {
    "integers": "int(seed.integers(2**63))",  # numpy.random.Generator
    "getrandbits": "seed.getrandbits(64)",  # random.Random
    "randint": "int(seed.randint(2**31))",  # numpy.random.RandomState
    "random_raw": "int(seed.random_raw())",  # numpy.random.BitGenerator
    "generate_state": "int(seed.generate_state(1)[0])",  # numpy.random.SeedSequence
    "initial_seed": "int(torch.randint(2**63 - 1, (), generator=seed, device=seed.device))",
}


def _way_to_seed(seed: Any) -> str:
    """How a generator or a key of JAX's becomes a seed, as messages end; nothing for all else."""
    for method, call in _DRAWS.items():
        if hasattr(seed, method):
            return f"; draw one, as {call}"
    dtype, shape = str(getattr(seed, "dtype", "")), shape_of(seed, (0,))
    key = "seed"
    if not (dtype.startswith("key<") and shape == ()):
        if dtype != "uint32" or not type(seed).__module__.startswith("jax"):
            return ""
        if shape == (4,):
            key = "jax.random.wrap_key_data(seed, impl='rbg')"
        elif shape != (2,):
            return ""
    if is_traced(seed):
        return f"; draw an offset, and pass a seed of 0 and offset=jax.random.bits({key})"
    return f"; draw one, as int(jax.random.bits({key}))"


def out_of_range(function: str, argument: str, number: int, low: int, high: int) -> ValueError:
    """The error for an int that is not in [low, high]."""
    largest = f"{high}"  # not str, which compilers of Python code do not take of a symbol
    if high >= 2**32:
        bits = high.bit_length()
        largest = f"2**{bits - 1}" if high == 2 ** (bits - 1) else f"2**{bits} - 1"
    bound = f"{low} <= {argument} <= {largest}"
    got = number if number.bit_length() <= 256 else described(number)
    return ValueError(f"{function}: {argument} is {got}; expected {bound}")


def shape_of(value: Any, otherwise: tuple[int, ...] = ()) -> tuple[int, ...]:
    """The shape of anything that has one; classes and symbols have an attribute that is none."""
    shape = getattr(value, "shape", None)
    return tuple(shape) if isinstance(shape, tuple) else otherwise


def is_traced(value: Any) -> bool:
    """Whether JAX records a program, in which the value stands for what will be there."""
    return "Tracer" in type(value).__name__


def printable(name: str) -> str:
    """A name from a file or of one, which may hold what terminals obey and fonts lack."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)


def no_number(function: str, argument: str, value: Any) -> TypeError:
    """The error for what is no number, an array of one for example."""
    way_out = ""
    if is_traced(value):
        way_out = "; name it in static_argnums of jax.jit, or multiply the result"
    elif math.prod(shape_of(value, (0,))) == 1:
        way_out = f"; pass float({argument})"
    return TypeError(f"{function}: {argument} is {described(value)}; expected a number{way_out}")


def real(function: str, argument: str, value: Any) -> float:
    """value, a real number, as a float."""
    try:
        return float(value)
    except OverflowError:
        raise ValueError(
            f"{function}: {argument} is an integer beyond float64; expected a finite float32"
        ) from None


def renamed(error: Exception, own: str, function: str) -> Exception:
    """An error of the function `own` as one of the function that was called."""
    text = str(error)
    if own == function or type(error) not in (TypeError, ValueError, RuntimeError):
        return error
    start = f"{own}: "
    return type(error)(f"{function}: {text[len(start) :]}") if text.startswith(start) else error


def without(argument: str) -> str:
    """The way out that is to leave an argument out; of out[0].codes it is out, the whole, that a
    caller may leave out."""
    return f"leave {argument.partition('.')[0].partition('[')[0]} out"


def not_writable(function: str, argument: str, framework: str) -> TypeError:
    """The error for an output of a framework whose arrays are immutable."""
    return TypeError(
        f"{function}: {argument} is given, but {framework} arrays cannot be written to; "
        f"{without(argument)}"
    )


def flag(function: str, argument: str, value: Any) -> bool:
    """value, which is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{function}: {argument} is {described(value)}; expected True or False")
    return value


def other_dtype(function: str, dtype: str, own: str) -> ValueError:
    """The error for a dtype that is not that of out."""
    return ValueError(
        f"{function}: dtype is {dtype!r}, and out has dtype {own}; expected one of both; leave "
        f"dtype out, or pass an out of {dtype}"
    )
