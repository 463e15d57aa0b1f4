import numpy as np
import pytest
from PIL import Image

from vidvec_msg.media.images import ImageError, check_pixels, read_image, shrink


@pytest.fixture
def corner():
    pixels = np.zeros((48, 64, 3), np.uint8)
    pixels[:24, :32] = 255
    return pixels


def test_read(tmp_path, corner):
    Image.fromarray(corner).save(tmp_path / "a.png")
    read = read_image(tmp_path / "a.png")
    np.testing.assert_array_equal(read, corner)
    assert read.flags.writeable  # else torch warns


def test_exif_orientation_is_applied(tmp_path, corner):
    image = Image.fromarray(corner)
    exif = image.getexif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    image.save(tmp_path / "phone.jpg", exif=exif, quality=95)
    upright = read_image(tmp_path / "phone.jpg")
    assert upright.shape == (64, 48, 3)
    assert upright[:32, 24:].mean() > 250
    assert upright[:32, :24].mean() < 5


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1", "CMYK"])
def test_every_mode_becomes_rgb(tmp_path, corner, mode):
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    Image.fromarray(corner).convert(mode).save(path)
    assert read_image(path).shape == (48, 64, 3)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "no such file"), (b"", "empty file"), (b"hello", "not an image"), (b"PNG", "not an image")],
)
def test_no_image(tmp_path, content, reason):
    path = tmp_path / "a.png"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ImageError, match=reason):
        read_image(path)


def test_truncated(tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes((tmp_path / "a.png").read_bytes()[:3000])
    with pytest.raises(ImageError, match="cannot decode image"):
        read_image(tmp_path / "b.png")


@pytest.mark.parametrize("budget", [1, 100, 768, 3071])
def test_shrink_keeps_the_budget_and_the_shape(corner, budget):
    height, width, _ = shrink(corner, budget).shape
    assert height * width <= budget
    frames = shrink(np.stack([corner] * 3), budget)
    assert frames.shape == (3, height, width, 3)


def test_shrink_leaves_small_ones_alone(corner):
    assert shrink(corner, 0) is corner
    assert shrink(corner, 48 * 64) is corner


def test_pixels_in_memory(corner):
    assert check_pixels(corner[:, ::-1], dimensions=3).flags.c_contiguous
    with pytest.raises(
        ImageError, match=r"must have shape \(height, width, 3\), got \(3, 48, 64\); channels come last"
    ):
        check_pixels(np.moveaxis(corner, -1, 0), dimensions=3)
