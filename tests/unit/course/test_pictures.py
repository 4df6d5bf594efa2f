from __future__ import annotations

import base64
import io

import pytest

from turbo_lab.course.pictures import smaller_output, smaller_png

Image = pytest.importorskip("PIL.Image")


def shaded(width: int = 300, height: int = 200) -> bytes:
    """A picture with thousands of shades and a transparent corner."""
    image = Image.new("RGBA", (width, height))
    for x in range(width):
        for y in range(height):
            image.putpixel((x, y), (x % 256, y, (x * y) % 256, 0 if x < 9 and y < 9 else 255))
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


def test_a_picture_keeps_its_size_and_look_and_shrinks():
    before, after = shaded(), smaller_png(shaded())
    assert len(after) < len(before) and after == smaller_png(before)
    old, new = (Image.open(io.BytesIO(data)) for data in (before, after))
    assert new.size == old.size and new.mode == "P"
    pairs = [(old.getpixel((x, y))[:3], new.convert("RGB").getpixel((x, y)))
             for x, y in ((50, 50), (200, 100), (299, 199))]  # fmt: skip
    assert all(max(abs(a - b) for a, b in zip(*pair, strict=True)) < 90 for pair in pairs)


def test_transparent_parts_become_white():
    image = Image.new("RGBA", (200, 100))
    for x in range(200):
        image.putpixel((x, 50), (0, 0, 0, 255))
    stream = io.BytesIO()
    image.save(stream, "PNG")
    small = Image.open(io.BytesIO(smaller_png(stream.getvalue()))).convert("RGB")
    assert min(small.getpixel((1, 1))) > 250 and max(small.getpixel((0, 50))) < 8


def test_doing_it_twice_changes_nothing():
    once = smaller_png(shaded())
    assert smaller_png(once) == once


def test_an_output_that_is_no_picture_stays():
    assert smaller_output("bm8gcGljdHVyZQ==") == "bm8gcGljdHVyZQ=="
    text = base64.b64encode(shaded()).decode()
    assert len(smaller_output(text)) < len(text)
