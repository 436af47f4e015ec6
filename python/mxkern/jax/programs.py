# mxkern/jax/programs.py: operations on JAX's arrays as programs, or as parts of one where
# there are tracers, inside of jax.jit. XLA makes the results, where they belong.
from __future__ import annotations

import numbers
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from mxkern import _core
from mxkern.arrays.jax_cuda import device_index
from mxkern.faults.arrays import factor as check_factor
from mxkern.faults.offset import check_offset
from mxkern.jax import operations
from mxkern.jax.ffi import missing
from mxkern.jax.mesh_axes import over_the_axes_of
from mxkern.ops.calls import calls
from mxkern.values import errors
from mxkern.values.prepared_operand import PreparedOperand

_SCALARS = ("amax", "tensor_scale")
_DIFFERENTIATED = (*_SCALARS, "offset")  # where they are arrays


class JaxPrograms:
    """Takes arguments with tracers in them and arrays on one device, and leaves all others, by
    None, to the usual way. What can be checked without values is checked while tracing."""

    def __init__(self) -> None:
        missing("cpu")  # programs that were exported elsewhere find the operations from now on

    def run(
        self, operation: str, static: tuple[Any, ...], arrays: tuple[Any, ...], out: Any = None
    ) -> Any:
        """A function of mxkern.jax.operations, of arguments that are part of the program and of
        arrays."""
        work, on_cpu = getattr(operations, operation), _suits_the_cpu(operation, static, arrays)
        return _run(operation, work, static, arrays, out, on_cpu=on_cpu)

    def quantize(
        self,
        function: str,
        operation: str,
        static: tuple[Any, ...],
        x: Any,
        amax: Any,
        tensor_scale: Any,
        out: Any,
    ) -> Any:
        """One that quantizes, with options among what is part of the program."""
        split = [_split(function, each) for each in static]
        static = tuple(each for each, _ in split)
        offset = next((array for _, array in split if array is not None), None)
        # On the CPU a program is compiled once, and not for each seed, and has no amax whose value
        # can be checked.
        options = [each for each in static if isinstance(each, _core.QuantizeOptions)]
        is_given = amax is not None or tensor_scale is not None
        on_cpu = not is_given and all(each.is_nearest for each in options)
        work, arrays = getattr(operations, operation), (x, amax, tensor_scale, offset)
        return _run(function, work, static, arrays, out, _SCALARS, on_cpu)

    def straight_through(
        self, signature: _core.Signature, x: Any, scheme: Any, keywords: dict[str, Any], out: Any
    ) -> Any:
        """fake_quantize, whose derivative is that of x where JAX traces it."""
        function = signature.function
        _refuse_out(function, out)

        def decoded(x: Any, **arrays: Any) -> Any:
            return _core.fake_quantize(
                calls, signature, x, scheme, {**keywords, **arrays}, through=False
            )

        if not isinstance(x, jax.core.Tracer):
            return decoded(x)
        given = {name: keywords[name] for name in _DIFFERENTIATED if name in keywords}
        arrays = {name: value for name, value in given.items() if isinstance(value, jax.Array)}
        return _straight_through(function, decoded, x, arrays)

    def callback(self, work: Callable[[Any], Any], x: Any) -> Any:
        """work(x), whose result is like x, called by the program on the host; its derivative is
        that of the identity."""

        def outside(x: Any) -> Any:
            like = jax.ShapeDtypeStruct(x.shape, x.dtype)
            return jax.pure_callback(
                lambda value: work(np.asarray(value)), like, x, vmap_method="sequential"
            )

        run = jax.custom_jvp(outside)
        run.defjvp(lambda primals, tangents: (run(*primals), tangents[0]))
        return run(x)


def _run(
    function: str,
    operation: Callable[..., Any],
    static: tuple[Any, ...],
    arrays: tuple[Any, ...],
    out: Any = None,
    scalars: tuple[str, ...] = (),
    on_cpu: bool = True,
) -> Any:
    """operation(device, *static, *arrays), of tracers as a part of the program that is traced, and
    of arrays on one device as a program of its own; on_cpu: of arrays on the CPU, too. scalars:
    which arguments may be numbers."""
    leaves = jax.tree_util.tree_leaves(arrays)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        backend = jax.default_backend()
        lack = missing(backend)
        if lack is not None:
            raise TypeError(
                f"{function}: an argument is a JAX tracer, which takes {lack}; call outside of "
                f"jax.jit and jax.vmap, or through jax.pure_callback"
            )
        _refuse_out(function, out)
        _refuse_symbols(function, leaves)
        if scalars:
            x, amax, tensor_scale, offset = arrays
            arrays = (x, *map(_of_numbers, (amax, tensor_scale)), offset)
        return operation(-1 if backend == "cpu" else 0, *static, *arrays)
    found = _device_of([leaf for leaf in leaves if not (scalars and _is_number(leaf))])
    if found is None or found.platform not in ("cpu", "gpu"):
        return None
    if found.platform == "cpu" and (not on_cpu or out is not None):
        return None
    lack = missing(found.platform)
    if lack is not None and found.platform == "cpu":
        return None
    if lack is not None:
        raise RuntimeError(
            f"{function}: an argument is a JAX array on a CUDA device, which takes {lack}; move "
            "the arrays to the CPU with jax.device_put(array, jax.devices('cpu')[0])"
        )
    _refuse_out(function, out)
    if scalars:
        x, amax, tensor_scale, offset = arrays
        both = zip(scalars, (amax, tensor_scale), strict=True)
        arrays = (x, *(_as_float32(function, *one) for one in both), offset)
    return _program(operation, device_index(found), *static)(*arrays)


def _straight_through(
    function: str,
    decoded: Callable[..., Any],
    x: Any,
    arrays: dict[str, Any],
) -> Any:
    """What is differentiated are arrays, which must be arguments; numbers stay what they are."""

    def fake_quantize(x: Any, arrays: dict[str, Any]) -> Any:  # its name is in programs that print
        # Arrays of NumPy come as ones of a class of JAX's own.
        x, arrays = jax.tree_util.tree_map(jax.numpy.asarray, (x, arrays))
        return decoded(x, **arrays)

    run = jax.custom_jvp(fake_quantize)

    def rule(primals: Any, tangents: Any) -> Any:
        zero = jax.custom_derivatives.SymbolicZero
        tangent, others = tangents
        for name, other in others.items():
            if not isinstance(other, zero):
                raise ValueError(
                    f"{function}: {name} is differentiated, and the result has no derivative of "
                    f"it; expected one of x alone; pass jax.lax.stop_gradient({name})"
                )
        if isinstance(tangent, zero):
            tangent = jax.numpy.zeros(tangent.shape, tangent.dtype)
        result = run(*primals)
        return result, over_the_axes_of(tangent, result)

    run.defjvp(rule, symbolic_zeros=True)
    return run(x, arrays)


@lru_cache(maxsize=1024)
def _program(operation: Callable[..., Any], device: int, *static: Any) -> Any:
    def run(*arrays: Any) -> Any:
        return operation(device, *static, *arrays)

    return jax.jit(run)


def _device_of(leaves: list[Any]) -> Any:
    """The device of JAX's that all arrays are on; None if there is no such."""
    found = None
    for leaf in leaves:
        # Random keys have a dtype of JAX's own.
        if not isinstance(leaf, jax.Array) or not isinstance(leaf.dtype, np.dtype):
            return None
        devices = leaf.devices()
        if len(devices) != 1:
            return None
        (device,) = devices
        if found not in (None, device):
            return None
        found = device
    return found


def _suits_the_cpu(operation: str, static: tuple[Any, ...], arrays: tuple[Any, ...]) -> bool:
    """Whether a program is what a CPU's arrays want."""
    if operation == "gemm":
        _, alpha, _ = static
        return bool(alpha == 1.0) and not any(isinstance(x, PreparedOperand) for x in arrays)
    return operation not in ("grouped_gemm", "prepare_operand")


def _split(function: str, options: Any) -> tuple[Any, Any]:
    """Options without an array, and the array that is their offset; all else stays as it is."""
    if not isinstance(options, _core.OffsetOptions):
        return options, None
    array: Any = options.array
    if not isinstance(array, (jax.Array, np.ndarray, np.generic)):
        raise TypeError(
            f"{function}: offset is {errors.described(array)}, and x is an array of JAX; expected "
            "arrays of one framework, or an int"
        )
    check_offset(function, array)
    return options.without_array(), array


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _as_float32(function: str, name: str, value: Any) -> Any:
    """Numbers as arguments of a program, so that the next ones need no other program."""

    def as_float32(value: Any) -> Any:
        if not _is_number(value):
            return value
        number = errors.real(function, name, value)
        check_factor(function, name, number)
        return np.array(_core.float32_bits(number + 0.0), np.uint32).view(np.float32)  # -0 is 0

    return jax.tree_util.tree_map(as_float32, value)


def _of_numbers(value: Any) -> Any:
    """Numbers that JAX traces are weakly typed arrays, of 64 bits where it has those."""

    def as_float32(value: Any) -> Any:
        traced = isinstance(value, jax.core.Tracer) and value.aval.weak_type
        is_number = traced and value.dtype.kind in "fi"
        return value.astype(np.float32) if is_number else value

    return jax.tree_util.tree_map(as_float32, value)


def _refuse_symbols(function: str, leaves: list[Any]) -> None:
    """ValueError for shapes of which jax.export does not know the numbers."""
    for leaf in leaves:
        shape = getattr(leaf, "shape", ())
        if not all(isinstance(n, numbers.Integral) for n in shape):
            text = ", ".join(map(str, shape))
            raise ValueError(
                f"{function}: an argument has the symbolic shape ({text}), and programs of mxkern "
                "are made for numbers; expected ints; export once for each shape, with "
                "jax.ShapeDtypeStruct of ints"
            )


def _refuse_out(function: str, out: Any) -> None:
    if out is not None:
        raise errors.not_writable(function, "out", "JAX")
