"""The pictures of docs/gallery.md: those that its examples give, one for each structure."""

import inspect
import re
import runpy
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import directloss as dl

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/gallery.md").read_text()
FOLDER = ROOT / "docs/figures/gallery"


@pytest.fixture(scope="module")
def drawn():
    pytest.importorskip("highspy")
    sys.path.insert(0, str(ROOT / "tools/gallery"))
    try:
        return runpy.run_path(str(ROOT / "tools/gallery/__main__.py"))["pictures"]()
    finally:
        sys.path.remove(str(ROOT / "tools/gallery"))


def test_the_pictures_are_those_of_the_examples(drawn):
    """Run `make gallery` if this fails."""
    assert {path.name for path in FOLDER.iterdir()} == drawn.keys()
    for file, text in drawn.items():
        assert (FOLDER / file).read_text() == text, file


def test_pictures_are_small_and_have_six_panels_of_text_that_is_legible_on_a_telephone(drawn):
    for file, text in drawn.items():
        root = ET.fromstring(text)
        width = float(root.attrib["viewBox"].split()[2])
        sizes = [float(one.attrib["font-size"]) for one in root.iter() if one.tag.endswith("text")]
        assert len(text.encode()) < 60_000, file
        assert len(root.findall("{*}g")) == 6, file
        assert min(sizes) * 358 / width > 9, file  # a telephone's 390 pixels, less the margins


def test_every_structure_has_a_picture():
    titles = re.findall(r"^## (\w+)", PAGE, re.MULTILINE)
    public = [getattr(dl, name) for name in dl.__all__]
    kinds = {one.__name__ for one in public if inspect.isclass(one) and issubclass(one, dl.Structure)}
    assert kinds - {"Structure"} | {"custom"} == set(titles)
    assert [file.name for file in FOLDER.iterdir() if f"(figures/gallery/{file.name})" not in PAGE] == []
