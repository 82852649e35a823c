import pytest

from train.pace import CHUNK_SECONDS, Pace


def test_chunks_begin_with_one_update_and_double_until_they_last_long_enough():
    pace, chunks = Pace(), []
    for _ in range(12):
        chunks.append(pace.chunk)
        pace.took(0.01 * pace.chunk, pace.chunk, lanes=3, tokens=1, compiles=False)
    assert chunks == [1, 2, 4, 8, 16, 32, 64, 128, *[round(CHUNK_SECONDS / 0.01)] * 4]


def test_a_slow_chunk_shortens_the_next_at_once_but_never_below_one_update():
    pace = Pace()
    pace.chunk = 64
    pace.took(64.0, 64, lanes=1, tokens=1, compiles=False)
    assert pace.chunk == round(CHUNK_SECONDS)
    pace.took(100.0, 2, lanes=1, tokens=1, compiles=True)
    assert pace.chunk == 1


def test_rates_leave_out_what_compiled_and_start_anew():
    pace = Pace()
    pace.took(30.0, 1, lanes=3, tokens=100, compiles=True)
    assert pace.words() == "compiling"
    pace.took(2.0, 10, lanes=3, tokens=5000, compiles=False)
    pace.took(40.0, 10, lanes=3, tokens=5000, compiles=True)
    assert pace.words() == "15 lane-steps/s, 2,500 tokens/s"
    pace.took(1.0, 1000, lanes=9, tokens=7, compiles=False)
    assert pace.words() == "9,000 lane-steps/s, 7 tokens/s"


@pytest.mark.parametrize("seconds", [0.0, 1e-12])
def test_a_clock_that_stands_still_does_no_harm(seconds):
    pace = Pace()
    for _ in range(3):
        pace.took(seconds, 1, lanes=1, tokens=1, compiles=False)
    assert pace.chunk == 8
    assert pace.words()
