"""What is printed where there is no terminal."""

import pytest

from train.progress import Progress, clock


@pytest.mark.parametrize(("seconds", "shown"), [(0.4, "0:00"), (59.6, "1:00"), (3599, "59:59"), (3661, "1:01:01")])
def test_clock(seconds, shown):
    assert clock(seconds) == shown


def test_a_line_says_where_a_cell_begins_or_goes_on_and_each_evaluation(capsys):
    with Progress(groups=2, updates=60) as progress:
        progress.start("score=dot", lanes=1, skipped=0, steps=30, compiled=False)
        progress.advance(30)
        progress.evaluated(30, 30, "best valid loss 0.5", "15 lane-steps/s")
        progress.start("score=additive", lanes=3, skipped=20, steps=30, compiled=True)
        progress.advance(10)
        progress.evaluated(30, 30, "best valid loss 0.25", "16 lane-steps/s")
    begins, first, goes_on, last = capsys.readouterr().out.splitlines()
    assert begins == "[1/2] score=dot  30 steps, 1 lane; compiling first"
    assert first.startswith("[1/2] score=dot  step 30/30  best valid loss 0.5  15 lane-steps/s  ")
    assert goes_on == "[2/2] score=additive  going on from step 20/30, 3 lanes"
    assert last == "[2/2] score=additive  step 30/30  best valid loss 0.25  16 lane-steps/s  0:00 left"


def test_one_step_and_one_lane_are_no_plural(capsys):
    with Progress(groups=1, updates=1) as progress:
        progress.start("score=dot", lanes=1, skipped=0, steps=1, compiled=True)
    assert capsys.readouterr().out == "[1/1] score=dot  1 step, 1 lane\n"
