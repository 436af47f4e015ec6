# tests/python/files/test_safetensors_index.py: a model in several files: what its index gives, and
# what may be wrong with it.
import json
import shutil

import numpy as np
import pytest

from mxkern.cli.main import main
from mxkern.files.safetensors import read_safetensors
from mxkern.files.safetensors_index import read_safetensors_index
from safetensors_files import write_safetensors

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def write_index(folder, index, name="model.safetensors.index.json"):
    path = folder / name
    path.write_bytes(index if isinstance(index, bytes) else json.dumps(index).encode())
    return str(path)


@pytest.fixture
def tensors():
    rng = np.random.default_rng(0)
    shapes = {"a.weight": (8, 64), "b.weight": (4, 96), "b.bias": (96,), "c.weight": (2, 32)}
    return {name: rng.standard_normal(shape).astype("f") for name, shape in shapes.items()}


@pytest.fixture
def weight_map(tensors, tmp_path):
    files = {"a.weight": SECOND, "b.weight": FIRST, "b.bias": SECOND, "c.weight": FIRST}
    for file in (FIRST, SECOND):
        inside = {name: array for name, array in tensors.items() if files[name] == file}
        write_safetensors(tmp_path / file, inside)
    return files


def test_tensors_of_all_files_in_the_order_of_the_index(tensors, weight_map, tmp_path):
    path = write_index(tmp_path, {"metadata": {"total_size": 4}, "weight_map": weight_map})
    model = read_safetensors_index(path)
    assert list(model) == list(tensors) and len(model) == 4
    for name, array in tensors.items():
        np.testing.assert_array_equal(model[name], array)
        assert not model[name].flags.writeable
    assert model.metadata == {"total_size": 4} and model.file_names == weight_map
    assert model.files[FIRST].entries["b.weight"].shape == (4, 96)
    with pytest.raises(KeyError):
        model["d.weight"]


def test_what_an_index_does_not_name_is_not_there(tensors, weight_map, tmp_path, monkeypatch):
    write_index(tmp_path, {"weight_map": {"c.weight": FIRST}}, "some.index.json")
    (tmp_path / SECOND).unlink()
    monkeypatch.chdir(tmp_path)
    model = read_safetensors_index("some.index.json")
    assert list(model) == ["c.weight"] and model.metadata == {} and list(model.files) == [FIRST]
    np.testing.assert_array_equal(model["c.weight"], tensors["c.weight"])


def test_an_index_without_tensors(tmp_path):
    assert dict(read_safetensors_index(write_index(tmp_path, {"weight_map": {}}))) == {}


BAD = {
    "empty": (b"", r"it is no valid JSON .*; expected one UTF-8 JSON object"),
    "array": (b"[]", r"it is a JSON list; expected a JSON object"),
    "nested": (b"[" * 100_000, r"it is JSON nested too deeply"),
    "twice": (b'{"weight_map": {"a": "x", "a": "y"}}', r"duplicate key 'a'"),
    "no map": ({"metadata": {}}, r"weight_map is None; expected an object"),
    "list": ({"weight_map": ["a"]}, r"weight_map is \['a'\]; expected an object"),
    "metadata": ({"weight_map": {}, "metadata": 1}, r"metadata is 1; expected an object"),
    "number": ({"weight_map": {"a.weight": 1}}, r"tensor 'a.weight' is in 1; expected the name"),
    "elsewhere": ({"weight_map": {"a": "../x"}}, r"in '../x'; expected the name of a file beside"),
    "absolute": ({"weight_map": {"a": "/etc/x"}}, r"in '/etc/x'; expected the name of a file"),
    "windows": ({"weight_map": {"a": "..\\x"}}, r"expected the name of a file beside it"),
    "zero": ({"weight_map": {"a": "a\0b"}}, r"expected the name of a file beside it"),
    "folder": ({"weight_map": {"a": ".."}}, r"expected the name of a file beside it"),
    "no name": ({"weight_map": {"a": ""}}, r"expected the name of a file beside it"),
    "other": ({"weight_map": {"a.weight": FIRST}}, rf"'{FIRST}' has no tensor 'a.weight'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_indices_get_a_clear_error(case, weight_map, tmp_path):
    index, message = BAD[case]
    path = write_index(tmp_path, index)
    with pytest.raises(ValueError, match=message) as caught:
        read_safetensors_index(path)
    assert str(caught.value).startswith(f"{path}: ") and len(str(caught.value)) < 1000


def test_bad_files_are_named(weight_map, tmp_path):
    path = write_index(tmp_path, {"weight_map": weight_map})
    (tmp_path / SECOND).write_bytes(b"12345678")
    with pytest.raises(ValueError, match=rf"{SECOND}: header length is .*damaged"):
        read_safetensors_index(path)
    (tmp_path / SECOND).unlink()
    with pytest.raises(
        ValueError, match=rf"tensor 'a.weight' is in '{SECOND}', which is not there"
    ):
        read_safetensors_index(path)
    with pytest.raises(FileNotFoundError, match="no-such"):
        read_safetensors_index(tmp_path / "no-such.index.json")
    with pytest.raises(ValueError, match="it is a device; expected a regular file"):
        read_safetensors_index("/dev/zero")


def test_an_index_is_no_safetensors_file(weight_map, tmp_path):
    path = write_index(tmp_path, {"weight_map": weight_map})
    with pytest.raises(ValueError, match=r"an index, .*read_safetensors_index"):
        read_safetensors(path)


def test_compare_takes_an_index(tensors, weight_map, tmp_path, capsys):
    path = write_index(tmp_path, {"weight_map": weight_map})
    assert main(["compare", path]) == 0
    several = capsys.readouterr().out.split("\n", 1)
    assert several[0].startswith(f"{path}: 3 tensors, 960 elements; left out: 1 of fewer")
    one = write_safetensors(tmp_path / "one.safetensors", tensors)
    assert main(["compare", one]) == 0
    assert capsys.readouterr().out.split("\n", 1)[1] == several[1]
    shutil.move(tmp_path / FIRST, tmp_path / "elsewhere.safetensors")
    assert main(["compare", path]) == 1
    assert f"'{FIRST}', which is not there" in capsys.readouterr().err
