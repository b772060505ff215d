"""Where stderr is no terminal: at most a line every ten seconds, which says where the work stands and when it ends."""

import io

import pytest

from lqf.utils import progress_lines
from lqf.utils.progress import Progress
from lqf.utils.progress_lines import LINE_SECONDS, ProgressLines
from processes import python


class Log:
    """Lines under a clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self._stream = 1000.0, io.StringIO()
        monkeypatch.setattr(progress_lines.time, "monotonic", lambda: self.now)
        self.progress: Progress = ProgressLines(self._stream)

    @property
    def lines(self) -> list[str]:
        return self._stream.getvalue().splitlines()


@pytest.fixture
def log(monkeypatch):
    return Log(monkeypatch)


def test_ten_seconds_lie_between_two_lines():
    assert LINE_SECONDS == 10.0


def test_at_most_one_line_per_interval(log):
    with log.progress.stage("solving", total=100, unit="passes") as stage:
        for _ in range(100):
            log.now += 0.5
            stage.advance()
    counts = [line.split()[1] for line in log.lines]
    assert counts == ["20/100", "40/100", "60/100", "80/100", "100/100"]


def test_nothing_but_sentences_for_short_work(log):
    log.progress.say("Plan:")
    for rung in ("head", "LQF", "stack"):
        with log.progress.rung(rung, 1.0, 2.0), log.progress.stage("solving", total=3) as stage:
            log.now += 9.9
            stage.advance(3)
        log.progress.say(f"{rung}: kept")  # the time until the next line begins again
    assert log.lines == ["Plan:", "head: kept", "LQF: kept", "stack: kept"]


def test_a_line_has_rung_stage_share_and_both_expected_ends(log):
    with log.progress.rung("LQF", 70.0, 90.0), log.progress.stage("refits without a fold", 5, "folds") as stage:
        log.now += 30.0
        stage.advance(2)
    assert log.lines == ["  LQF: refits without a fold 2/5 folds (40%); rung done in about 40 s, all in about 2 min"]


def test_the_last_rung_ends_with_the_whole(log):
    with log.progress.rung("stack", 70.0, 0.0), log.progress.stage("solving", 5, "passes") as stage:
        log.now += 30.0
        stage.advance(2)
    assert log.lines == ["  stack: solving 2/5 passes (40%); rung and all done in about 40 s"]


def test_the_prediction_counts_from_the_beginning_of_the_rung_not_of_the_stage(log):
    with log.progress.rung("LQF", 100.0, 60.0):
        log.now += 50.0
        with log.progress.stage("solving", 50, "passes"):
            pass
    assert log.lines == ["  LQF: solving 0/50 passes (0%); rung done in about 50 s, all in about 110 s"]


def test_without_a_rung_the_stage_says_how_long_it_still_takes(log):
    with log.progress.stage("reading images", total=400, unit="images") as stage:
        log.now += 30.0
        stage.advance(100)
        log.now += 30.0
        stage.advance(300)
    assert log.lines == [
        "  reading images 100/400 images (25%), about 90 s left",
        "  reading images 400/400 images (100%)",
    ]


def test_a_rung_beyond_its_prediction_goes_by_the_stage_under_way(log):
    with log.progress.rung("LQF", 20.0, 60.0), log.progress.stage("refits without a fold", 5, "folds") as stage:
        log.now += 30.0
        stage.advance(3)
    assert log.lines == [
        "  LQF: refits without a fold 3/5 folds (60%), about 20 s left; rung longer than predicted, all in 80 s or more"
    ]


@pytest.mark.parametrize(
    ("rest", "end"), [(60.0, "; rung longer than predicted, those after it about 60 s"), (0.0, "longer than predicted")]
)
def test_a_rung_beyond_its_prediction_expects_no_end_that_the_stage_does_not_know(log, rest, end):
    with log.progress.rung("LQF", 20.0, rest), log.progress.stage("Lanczos", unit="products") as stage:
        log.now += 30.0
        stage.advance(3)
    (line,) = log.lines
    assert line.startswith("  LQF: Lanczos 3 products; rung longer")  # no share of an unknown total
    assert line.endswith(end)


def test_of_nested_stages_the_innermost_is_shown_until_it_closes(log):
    with log.progress.stage("cells", total=4, unit="cells") as cells:
        with log.progress.stage("solving", total=2, unit="passes") as solving:
            for _ in range(2):
                log.now += 10.0
                solving.advance()
        log.now += 10.0
        cells.advance()
    assert [line.split(",")[0] for line in log.lines] == [
        "  solving 1/2 passes (50%)",
        "  solving 2/2 passes (100%)",
        "  cells 1/4 cells (25%)",
    ]


def test_a_stage_that_opens_or_closes_late_is_shown(log):
    log.now += 10.0
    with log.progress.stage("features", total=8, unit="images"):
        log.now += 10.0
    assert log.lines == ["  features 0/8 images (0%)"] * 2


def test_the_rung_is_over_with_its_block(log):
    def interrupted() -> None:
        with log.progress.rung("LQF", 20.0, 60.0), log.progress.stage("solving"):
            log.now += 10.0
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert log.lines == []  # an interrupted stage has no last line
    with log.progress.stage("saving", unit="files"):
        pass
    assert log.lines == ["  saving 0 files"]


def test_lines_go_to_stderr_alone_where_that_is_a_pipe():
    script = """
import time
from lqf.utils import progress_lines
from lqf.utils.progress import terminal_progress
progress_lines.LINE_SECONDS = 0.2
progress = terminal_progress()
progress.say("Plan:")
with progress.rung("LQF", 3600.0, 3600.0), progress.stage("solving", total=4, unit="passes") as stage:
    stage.advance()
    time.sleep(0.3)
    stage.advance()
    print("result")
    stage.advance()
"""
    done = python("-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "result\n"
    line = "  LQF: solving 2/4 passes (50%); rung done in about 60 min, all in about 120 min\n"
    assert done.stderr == f"Plan:\n{line}"
