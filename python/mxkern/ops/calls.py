# mxkern/ops/calls.py: the operations of the extension module over arrays of any framework.
from __future__ import annotations

import sys
from collections.abc import Iterable

from mxkern import _core, faults
from mxkern.arrays import adapter_of
from mxkern.arrays.adapter import DTYPES, PLAIN_DTYPES
from mxkern.ops import custom_calls
from mxkern.values.block_scaled import BlockScaled
from mxkern.values.options import FORMS, PRECISIONS, ROUNDINGS, SCALE_LAYOUTS, SCALE_RULES
from mxkern.values.prepared_operand import PreparedOperand
from mxkern.values.scheme import RECORDS, schemes


def _interned(names: Iterable[str]) -> list[str]:
    """As names in source code are, which are then found by their addresses."""
    return [sys.intern(name) for name in names]


def new_calls() -> _core.Calls:
    """One that has met no arrays yet."""
    return _core.Calls(
        faults=faults,
        custom=custom_calls,
        adapter_of=adapter_of,
        block_scaled=BlockScaled,
        prepared_operand=PreparedOperand,
        schemes={key: record.id for key, record in RECORDS.items()},
        scheme_names=_interned(scheme.name for scheme in schemes),
        layout_names=_interned(SCALE_LAYOUTS),
        form_names=_interned(FORMS),
        dtype_names=_interned(PLAIN_DTYPES),
        precision_names=_interned(PRECISIONS),
        element_names=_interned(DTYPES),
        rounding_names=_interned(ROUNDINGS),
        rule_names=_interned(SCALE_RULES),
        code_elements=[DTYPES.index(scheme.codes_dtype) for scheme in schemes],
        scale_elements=[DTYPES.index(scheme.scales_dtype) for scheme in schemes],
    )


calls = new_calls()
custom_calls.above.calls = calls
