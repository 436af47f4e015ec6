# tests/python/values/test_named_schemes.py: schemes that go by a name of their own: what is
# published of them, and that a name is its parameters.
import pickle

import numpy as np
import pytest

import mxkern
from mxkern.values.custom_scheme import NAMED

# Element, rows and columns of a block, scale format, what has a tensor scale, largest element and
# bits of an element with its share of the scale.
PUBLISHED = {
    "mxfp8_16": ("e4m3", 1, 16, "e8m0", None, 448.0, 8.5),
    "mxfp4_16": ("e2m1", 1, 16, "e8m0", None, 6.0, 4.5),
    "mxint4": ("int4", 1, 32, "e8m0", None, 1.75, 4.25),
    "nvfp4_32": ("e2m1", 1, 32, "ue4m3", "tensor", 6.0, 4.25),
    "nvfp4_ue5m3": ("e2m1", 1, 16, "ue5m3", None, 6.0, 4.5),
    "fp8_block128": ("e4m3", 128, 128, "float32", None, 448.0, 8 + 32 / 128**2),
    "fp8_block128_rows": ("e4m3", 1, 128, "float32", None, 448.0, 8.25),
}


def test_every_name_has_its_facts() -> None:
    assert PUBLISHED.keys() == NAMED.keys()


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_facts(name: str) -> None:
    scheme = mxkern.Scheme(name)
    facts = (scheme.format, scheme.block_rows, scheme.block, scheme.scale_format)
    facts += (scheme.tensor_scale_of, scheme.max_value, scheme.bits_per_element)
    assert facts == PUBLISHED[name]


@pytest.mark.parametrize("name", NAMED)
def test_a_name_is_its_parameters(name: str) -> None:
    scheme = mxkern.Scheme(name)
    assert scheme.name == name and str(name) in repr(scheme)
    assert mxkern.Scheme(NAMED[name]) is scheme
    assert pickle.loads(pickle.dumps(scheme)) is scheme
    x = np.random.default_rng(1).standard_normal((130, 300)).astype(np.float32)
    q = mxkern.quantize(x, name)
    assert q.scheme == name
    assert q.codes.tobytes() == mxkern.quantize(x, NAMED[name]).codes.tobytes()
    np.testing.assert_array_equal(mxkern.dequantize(q), mxkern.fake_quantize(x, name))
