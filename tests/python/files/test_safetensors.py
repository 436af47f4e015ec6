# tests/python/files/test_safetensors.py: the reader against written files, and against hostile
# ones.
import json
import os
import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxkern.files.safetensors import SafetensorsFile, parse_safetensors, read_safetensors

DTYPES = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "U16": np.uint16,
    "I16": np.int16,
    "U32": np.uint32,
    "I32": np.int32,
    "U64": np.uint64,
    "I64": np.int64,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F32": np.float32,
    "F64": np.float64,
    "C64": np.complex64,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}
PACKED = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}


def file_of(header, data=b""):
    """The bytes of a file with this header: an object to write as JSON, or its bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def random_bytes(count):
    return np.random.default_rng(count).integers(0, 256, count, np.uint8).tobytes()


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_is_a_view_of_the_file(name, tmp_path):
    dtype = np.dtype(DTYPES[name])
    data = bytes([0, 1, 1, 0, 1, 0]) if name == "BOOL" else random_bytes(6 * dtype.itemsize)
    header = json.dumps({"w": entry(name, (2, 3), (0, len(data))), "__metadata__": {"a": "b"}})
    header += " " * (-len(header) % 8)
    path = tmp_path / "one.safetensors"
    path.write_bytes(file_of(header.encode(), data))
    file = read_safetensors(path)
    array = file["w"]
    assert list(file) == ["w"] and len(file) == 1 and file.metadata == {"a": "b"}
    assert array.dtype == dtype and array.shape == (2, 3)
    assert array.tobytes() == data
    assert not array.flags.owndata and not array.flags.writeable


def test_metadata_of_null_are_none():
    file = parse_safetensors(file_of({"__metadata__": None, "w": entry("U8", (2,), (0, 2))}, b"ab"))
    assert file.metadata == {} and list(file) == ["w"]


@pytest.mark.parametrize("name", PACKED)
def test_packed_elements_are_bytes_of_a_row(name):
    data = random_bytes(2 * 4 * PACKED[name] // 8)
    array = parse_safetensors(file_of({"w": entry(name, (2, 4), (0, len(data)))}, data))["w"]
    assert array.dtype == np.uint8 and array.shape == (2, 4 * PACKED[name] // 8)
    assert array.tobytes() == data


def test_packed_rows_that_share_a_byte_come_flat():
    file = parse_safetensors(file_of({"w": entry("F4", (2, 3), (0, 3))}, b"abc"))
    assert file["w"].tobytes() == b"abc" and file["w"].shape == (3,)
    assert file.entries["w"].shape == (2, 3)


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F4", "F6_E2M3"])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (0, 2**40), (0, 7, 0)])
def test_tensors_without_elements(dtype, shape):
    file = parse_safetensors(file_of({"w": entry(dtype, shape, (0, 0))}))
    assert file["w"].size == 0 and file.entries["w"].shape == shape


def test_scalar_and_file_without_tensors():
    scalar = parse_safetensors(file_of({"s": entry("F32", (), (0, 4))}, struct.pack("<f", 2.5)))
    assert scalar["s"].shape == () and scalar["s"] == 2.5
    assert dict(parse_safetensors(file_of({}))) == {}


@pytest.mark.parametrize("shift", range(8))
def test_unaligned_data_is_read_right(shift, tmp_path):
    values = np.arange(6, dtype=np.float32)
    header = json.dumps({"w": entry("F32", (6,), (0, 24))}) + " " * shift
    path = tmp_path / "shifted.safetensors"
    path.write_bytes(file_of(header.encode(), values.tobytes()))
    array = read_safetensors(path)["w"]
    assert array.flags.aligned and not array.flags.writeable
    np.testing.assert_array_equal(array, values)


def test_tensors_lie_by_offset_not_by_order_in_the_header():
    header = {
        "b": entry("U8", (2,), (3, 5)),
        "z": entry("U8", (0,), (3, 3)),
        "a": entry("U8", (3,), (0, 3)),
    }
    file = parse_safetensors(file_of(header, b"abcde"))
    assert {name: array.tobytes() for name, array in file.items()} == {
        "a": b"abc",
        "b": b"de",
        "z": b"",
    }


def test_a_file_that_the_package_safetensors_wrote(tmp_path):
    save_file = pytest.importorskip("safetensors.numpy").save_file
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(5, dtype=np.uint8)}
    tensors |= {"c": tensors["a"].astype(ml_dtypes.bfloat16), "d": np.array(2.5)}
    save_file(tensors, tmp_path / "w.safetensors", metadata={"of": "a test"})
    file = read_safetensors(tmp_path / "w.safetensors")
    assert file.metadata == {"of": "a test"} and set(file) == set(tensors)
    for name, array in tensors.items():
        assert file[name].dtype == array.dtype and file[name].shape == array.shape
        assert file[name].tobytes() == array.tobytes()


def test_views_outlive_the_file_object(tmp_path):
    path = tmp_path / "w.safetensors"
    path.write_bytes(file_of({"w": entry("U8", (3,), (0, 3))}, b"abc"))
    array = read_safetensors(path)["w"]
    path.unlink()
    assert array.tobytes() == b"abc"


BIG = 2**63
DEEP = 100_000
HOSTILE = {
    "empty file": (b"", r"has 0 bytes; expected at least 8"),
    "no whole length": (b"\x01\x02", r"has 2 bytes; expected at least 8"),
    "header beyond the file": (struct.pack("<Q", 50) + b"{}", r"length is 50; .*at most the 2"),
    "header over the limit": (struct.pack("<Q", 2**63) + b"{}", r"at most 100000000"),
    "header a byte over": (struct.pack("<Q", 100_000_001) + b"{}", r"at most 100000000"),
    "no header": (struct.pack("<Q", 0), r"no valid JSON"),
    "not UTF-8": (file_of(b'{"\xff": 1}'), r"no valid JSON.*utf-8"),
    "lone surrogate": (file_of(b'{"\\ud800": 1}'), r"no valid JSON.*surrogates"),
    "no JSON": (file_of(b"PK\x03\x04"), r"no valid JSON"),
    "more after the object": (file_of(b"{} {}"), r"no valid JSON"),
    "NaN": (file_of(b'{"w": NaN}'), r"NaN is no JSON"),
    "deep JSON": (file_of(b"[" * DEEP + b"]" * DEEP), r"nested too deeply"),
    "deep entry": (
        file_of(b'{"w": ' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}"),
        r"nested too deeply",
    ),
    "huge number": (file_of(b'{"w": ' + b"9" * 10_000 + b"}"), r"no valid JSON.*digits"),
    "a list": (file_of([]), r"is a JSON list; expected a JSON object"),
    "duplicate tensor": (file_of(b'{"w": 1, "w": 2}'), r"duplicate key 'w'"),
    "duplicate field": (file_of(b'{"w": {"dtype": "U8", "dtype": "F32"}}'), r"duplicate key"),
    "metadata list": (file_of({"__metadata__": [1]}), r"__metadata__ is no object of strings"),
    "metadata number": (file_of({"__metadata__": {"a": 1}}), r"__metadata__ is no object"),
    "entry list": (file_of({"w": [1]}), r"tensor 'w': entry is \[1\]; expected an object"),
    "fields missing": (file_of({"w": {"dtype": "F32"}}), r"'w': entry lacks data_offsets, shape"),
    "dtype unknown": (file_of({"w": entry("F31")}, b"8" * 8), r"dtype is 'F31'; expected one of"),
    "dtype list": (file_of({"w": entry([])}, b"8" * 8), r"dtype is \[\]; expected one of"),
    "shape number": (file_of({"w": {**entry(), "shape": 2}}, b"8" * 8), r"shape is 2; expected"),
    "extent bool": (file_of({"w": entry(shape=(2, True))}, b"8" * 8), r"shape is \[2, True\]"),
    "extent float": (file_of({"w": entry(shape=(2.0,))}, b"8" * 8), r"shape is \[2.0\]"),
    "extent text": (file_of({"w": entry(shape=("2",))}, b"8" * 8), r"shape is \['2'\]"),
    "extent negative": (file_of({"w": entry(shape=(-1, -2))}, b"8" * 8), r"shape is \[-1, -2\]"),
    "extent huge": (file_of({"w": entry(shape=(BIG,))}, b"8" * 8), r"non-negative 63-bit"),
    "shape overflow": (file_of({"w": entry(shape=[2**32, 2**32])}, b"8" * 8), r"overflows"),
    "empty overflow": (file_of({"w": entry(shape=[0, 2**62], offsets=(0, 0))}), r"overflows"),
    "empty, a byte over": (file_of({"w": entry("U8", [0, 2**62, 2], (0, 0))}), r"overflows"),
    "rank": (file_of({"w": entry("U8", [1] * 33, (0, 1))}, b"8"), r"33 dimensions; expected at"),
    "offsets three": (file_of({"w": entry(offsets=(0, 4, 8))}, b"8" * 8), r"is \[0, 4, 8\]"),
    "offsets text": (file_of({"w": {**entry(), "data_offsets": "08"}}, b"8" * 8), r"is '08'"),
    "offsets bool": (file_of({"w": entry(offsets=(False, 8))}, b"8" * 8), r"is \[False, 8\]"),
    "offsets negative": (file_of({"w": entry(offsets=(-8, 0))}, b"8" * 8), r"is \[-8, 0\]"),
    "offsets reversed": (file_of({"w": entry(offsets=(8, 0))}, b"8" * 8), r"begin <= end"),
    "beyond the file": (file_of({"w": entry()}, b"8" * 7), r"end at 8; expected at most 7"),
    "far beyond": (file_of({"w": entry(offsets=(0, BIG))}, b"8" * 8), r"data_offsets is \[0, "),
    "size short": (file_of({"w": entry(shape=(3,))}, b"8" * 8), r"8 bytes; expected 12 bytes"),
    "size of none": (file_of({"w": entry(shape=(0,))}, b"8" * 8), r"8 bytes; expected 0 bytes"),
    "half a byte": (file_of({"w": entry("F4", (3,), (0, 1))}, b"8"), r"expected 1.5 bytes for F4"),
    "hole before": (file_of({"w": entry(offsets=(4, 12))}, b"8" * 12), r"begin at 4, .*hole"),
    "hole after": (file_of({"w": entry()}, b"8" * 9), r"end at byte 8 of the data; expected 9"),
    "hole between": (
        file_of({"v": entry(), "w": entry(offsets=(9, 17))}, b"8" * 17),
        r"tensor 'w': data_offsets begin at 9, which leaves a hole; expected 8",
    ),
    "overlap": (
        file_of({"v": entry(), "w": entry(offsets=(4, 12))}, b"8" * 12),
        r"tensor 'w': data_offsets begin at 4, which overlaps .*; expected 8",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_get_a_clear_error(case, tmp_path):
    data, message = HOSTILE[case]
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=message) as caught:
        read_safetensors(path)
    assert str(caught.value).startswith(f"{path}: ") and len(str(caught.value)) < 1000


def test_nesting_near_the_limit_of_the_interpreter():
    for depth in range(700, 1000, 7):
        data = file_of(b'{"w": ' + b"[" * depth + b"]" * depth + b"}")
        with pytest.raises(ValueError, match=r"nested|entry is \[\["):
            parse_safetensors(data)


def test_every_truncation_of_a_valid_file_is_refused():
    valid = file_of({"a": entry(), "b": entry("U8", (3,), (8, 11))}, random_bytes(11))
    for length in range(len(valid)):
        with pytest.raises(ValueError, match="<bytes>: "):
            parse_safetensors(valid[:length])


def read_all(data):
    """Reads every byte of every tensor; a refusal must be a ValueError. A fuzzer's entry point."""
    try:
        file = parse_safetensors(data)
    except ValueError:
        return None
    for name in file:
        file[name].tobytes()
    return file


VALID = file_of(
    {
        "a": entry("F32", (2, 2), (0, 16)),
        "b": entry("F4", (2, 4), (16, 20)),
        "c": entry("BF16", (3,), (20, 26)),
        "__metadata__": {"format": "pt"},
    },
    random_bytes(26),
)
mutations = st.lists(st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), max_size=4)


@settings(max_examples=400, deadline=None)
@given(mutations, st.integers(0, len(VALID)), st.binary(max_size=9))
def test_mutated_files_never_crash(changes, cut, tail):
    data = bytearray(VALID)
    for position, byte in changes:
        data[position] = byte
    file = read_all(bytes(data))
    assert file is None or sum(file[name].nbytes for name in file) == 26
    read_all(bytes(data[:cut]) + tail)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)
entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([*DTYPES, *PACKED]) | json_values,
        "shape": st.lists(st.integers(-1, 9), max_size=3) | json_values,
        "data_offsets": st.lists(st.integers(-1, 40), min_size=2, max_size=2) | json_values,
    }
)


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.text(max_size=4), entries | json_values, max_size=3) | json_values,
    st.binary(max_size=40),
)
def test_any_header_never_crashes(header, data):
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    file = read_all(file_of(text, data))
    assert file is None or sum(file[name].nbytes for name in file) == len(data)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_random_bytes_never_crash(data):
    read_all(data)
    read_all(struct.pack("<Q", len(data)) + data)


def test_the_mapping_says_what_the_header_says():
    file = parse_safetensors(VALID)
    assert isinstance(file, SafetensorsFile) and list(file) == ["a", "b", "c"]
    assert file.entries["b"] == ("F4", (2, 4), 16, 20)
    with pytest.raises(KeyError):
        file["missing"]


def test_what_has_no_end_is_not_read(tmp_path):
    pipe = tmp_path / "pipe.safetensors"
    os.mkfifo(pipe)
    for path, kind in (("/dev/zero", "device"), (pipe, "pipe"), (tmp_path, "folder")):
        with pytest.raises(ValueError, match=f"it is a {kind}; expected a regular file; "):
            read_safetensors(path)
