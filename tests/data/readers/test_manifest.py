"""CSV manifests; every complaint names its line."""

from pathlib import Path

import pytest

from lqf.data import Preprocess, load_samples, open_images
from lqf.errors import LQFError


@pytest.fixture
def manifest(tree):
    root = tree({"a.png": 0, "b.png": 1, "sub/c.png": 2, "sub/d é.png": 3})

    def write(text: str | bytes) -> Path:
        path = root / "list.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_all_columns(manifest):
    samples = load_samples(
        manifest("path,label,weight,group\na.png,x,2,g\nb.png,y,,g\nsub/c.png,x,0.5,\n"), classes=None
    )
    assert samples.ids == ("a.png", "b.png", "sub/c.png")
    assert samples.classes == ("x", "y")
    assert samples.labels.tolist() == [0, 1, 0]
    assert samples.weights.tolist() == [2, 1, 0.5]
    assert samples.groups == ("g", "g", "sub/c.png")  # an empty cell is the image alone
    assert len(open_images(samples, Preprocess(8))) == 3


def test_two_columns_in_any_order_and_others_ignored(manifest):
    samples = load_samples(manifest("note,Label , PATH\nhm,y,b.png\n,x,a.png\n"))
    assert samples.ids == ("b.png", "a.png")
    assert samples.labels.tolist() == [1, 0]
    assert samples.weights.tolist() == [1, 1]
    assert samples.groups is None


@pytest.mark.parametrize(
    "text",
    [
        "path;label\na.png;x\nsub/d é.png;y\n",
        "path\tlabel\na.png\tx\nsub/d é.png\ty\n",
        "\ufeffpath,label\r\na.png,x\r\n\r\n sub/d é.png , y \r\n",
        '"path","label"\n"./a.png","x"\n\n"sub/../sub/d é.png","y"',
        "path,label\na.png,x\nsub\\d é.png,y\n",
    ],
    ids=["semicolon", "tab", "excel", "quotes", "windows"],
)
def test_dialects(manifest, text):
    samples = load_samples(manifest(text))
    assert samples.ids == ("a.png", "sub/d é.png")
    assert samples.classes == ("x", "y")


def test_absolute_paths(manifest, tree):
    outside = tree({"z.png": 5}, "other") / "z.png"
    inside = manifest("").parent / "a.png"
    samples = load_samples(manifest(f"path,label\n{outside},x\n{inside},y\n"))
    assert samples.ids == (outside.as_posix(), "a.png")


def test_relative_to_the_manifest_not_to_the_working_folder(manifest, monkeypatch, tmp_path):
    path = manifest("path,label\na.png,x\n")
    monkeypatch.chdir(path.parent)
    assert load_samples("list.csv").ids == ("a.png",)
    monkeypatch.chdir(tmp_path)
    assert load_samples("photos/list.csv").ids == ("a.png",)


def test_or_to_the_working_folder_where_there_is_none(manifest, tree, monkeypatch):
    path = manifest("path,label\nphotos/b.png,x\nother/z.png,y\na.png,x\n")
    elsewhere = tree({"a.png": 7, "z.png": 8}, "other")
    monkeypatch.chdir(path.parent.parent)
    samples = load_samples(path)
    assert samples.ids == ("photos/b.png", "other/z.png", "a.png")
    assert [p.resolve() for p in samples.source.paths] == [
        path.parent / "b.png",
        elsewhere / "z.png",
        path.parent / "a.png",
    ]
    monkeypatch.chdir(elsewhere)  # where an a.png lies, too: the manifest's own folder comes first
    (images,) = load_samples(manifest("path,label\na.png,x\n")).source.paths
    assert images == path.parent / "a.png"


def test_a_missing_file_says_where_it_was_looked_for(manifest, monkeypatch, tmp_path):
    path = manifest("path,label\ngone.png,x\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LQFError) as raised:
        load_samples(path)
    assert str(raised.value).endswith(
        f"gone.png is not there; looked in `{path.parent}`, the manifest's folder, and in the working directory "
        f"`{tmp_path}`"
    )
    monkeypatch.chdir(path.parent)
    with pytest.raises(LQFError, match=r"looked in `[^`]*`, the manifest's folder$"):
        load_samples(path)


def test_what_a_label_is_is_said_once_behind_the_lines(manifest):
    lines = "".join(f"{name}.png,cat{i};dog\n" for i, name in enumerate("abz" * 4))
    with pytest.raises(LQFError) as raised:
        load_samples(manifest(f"path,label\n{lines}"))
    said = str(raised.value)
    assert "line 2: the label is 'cat0;dog'; line 3: the label is 'cat1;dog'; line 4" in said
    assert said.count("one label an image only") == 1
    assert "and 2 lines more; a label is a whole number or a name, one per image" in said


@pytest.mark.parametrize("label", ["cat;dog", "cat|dog", "cat | dog | bird"])
def test_several_labels_are_refused(manifest, label):
    with pytest.raises(LQFError, match=r"line 3: the label is 'cat.*one label an image only"):
        load_samples(manifest(f"path,label\na.png,cat\nb.png,{label}\n"))


def test_amounts_in_place_of_labels_are_refused(manifest):
    rows = "a.png,0.25\nb.png,1.5\nsub/c.png,-3.75\nsub/d é.png,2e-1\n".replace("2e-1", "0.2")
    with pytest.raises(LQFError, match=r"4 different numbers as labels of 4 images .*one label an image only"):
        load_samples(manifest(f"path,label\n{rows}"))
    doses = "a.png,0.5\nb.png,1.5\nsub/c.png,0.5\nsub/d é.png,1.5\n"
    assert load_samples(manifest(f"path,label\n{doses}")).classes == ("0.5", "1.5")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("path,class\na.png,x\n", r"no column label; its header is 'path,class'"),
        ("a.png,x\n", "no column path and no column label"),
        ("", "is empty"),
        ("path,label\n", "lists no image"),
        ("path,label,weights\na.png,x,1\n", "column weights; call it weight"),
        ("path,path,label\na.png,a.png,x\n", "column path twice"),
        ("path,label\na.png,x\ngone.png,y\n", r"line 3: gone\.png is not there"),
        ("path,label\nsub,x\n", "line 2: sub is a folder"),
        ("path,label\n\n\na.png,x\na.png,y\n", "line 5: a.png is on line 4 already"),
        ("path,label\na.png,x\n./a.png,y\n", "line 3: a.png is on line 2 already"),
        ("path,label\na.png\n", "line 2: 1 column instead of 2"),
        ("path,label\na.png,x,y\n", "line 2: 3 columns instead of 2"),
        ("path,label\na.png,\n", "line 2: no label"),
        ("path,label\n,x\n", "line 2: no path"),
        ("path,label,weight\na.png,x,1\nb.png,x,heavy\n", "line 3: the weight heavy is not a finite number"),
        ("path,label,weight\na.png,x,-1\n", "line 2: the weight -1"),
        ("path,label,weight\na.png,x,nan\n", "line 2: the weight nan"),
        ("path,label,weight\na.png,x,inf\n", "line 2: the weight inf"),
        (f"path,label\n{'n' * 5000}.png,x\n", "line 2: .* is not there"),
        (b"path,label\ncaf\xe9.png,x\n", "not UTF-8"),
        ('path,label\n"a.png,x\n', "not a CSV file"),
        ("path,label\na.png,x\nb.png,x\0\n", "line 3: the label is 'x.x00'; names have no NUL characters"),
    ],
)
def test_errors(manifest, text, sentence):
    with pytest.raises(LQFError, match=sentence):
        load_samples(manifest(text))


def test_many_bad_lines_are_told_at_once(manifest):
    with pytest.raises(LQFError) as raised:
        load_samples(manifest("path,label\n" + "".join(f"no{i}.png,x\n" for i in range(13))))
    assert "line 2: no0.png" in str(raised.value)
    assert "line 11: no9.png" in str(raised.value)
    assert "no10.png" not in str(raised.value)
    assert "3 lines more" in str(raised.value)


def test_missing_manifest(tmp_path):
    with pytest.raises(LQFError, match=r"list\.csv` is not there"):
        load_samples(tmp_path / "list.csv")


def test_weights_beside_the_manifests_own_are_refused(manifest):
    with pytest.raises(LQFError, match="weights of its own"):
        load_samples(manifest("path,label,weight\na.png,x,1\n"), sample_weight=[1])
