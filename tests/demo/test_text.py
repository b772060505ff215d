"""What the command prints."""

from lqf.demo import show


def test_show_fits_80_columns(result):
    assert max(map(len, show(result).splitlines())) <= 80


def test_show_has_every_number(result):
    text = show(result)
    for expected in ("18.6 % ± 1.4", "17.2 % ± 1.4", "19.0 % ± 1.9", "17.5 % ± 1.9", "exact", "2.30e-07", "123.4 s"):
        assert expected in text
    for cell in result["suspicious"]:
        assert cell["id"] in text
    assert "demo/index.html" in text
    assert "lqf predict demo/model" in text


def test_show_without_suspicious_cells(result):
    assert "No training label is contradicted" in show(result | {"suspicious": []})


def test_a_long_folder_name_is_not_broken(result):
    out = "/home/somebody/" + "a-rather-long-name/" * 5 + "demo"
    assert f"Open {out}/index.html\n" in show(result | {"out": out})


def test_commands_can_be_typed_as_they_are(result):
    assert "lqf predict 'my demo/model' IMAGE.png\n" in show(result | {"out": "my demo"})


def test_leave_one_out_is_compared_for_every_model(result):
    text = " ".join(show(result).split())
    gap = "points above the test error for"
    assert f"0.4 {gap} the closed-form head, 0.3 {gap} the bilinear head and 0.3 {gap} LQF" in text


def test_the_choice_of_pooling_is_told(result):
    text = " ".join(show(result).split())
    assert "cross-entropy of 0.420 with average pooling and 0.387 with bilinear pooling" in text
