"""How fast a cell trains, and so how many updates its next chunk may have."""

# A chunk is to last about this long at most, so that progress shows and a signal is heeded soon.
CHUNK_SECONDS = 2.0


class Pace:
    """Rates since they were last asked for.

    chunk: updates of the next chunk at most. The first is one update; the next ones double while they are short.
    """

    def __init__(self) -> None:
        self.chunk = 1
        self._start()

    def _start(self) -> None:
        self._updates, self._tokens, self._seconds = 0, 0, 0.0

    def took(self, seconds: float, updates: int, lanes: int, tokens: int, *, compiles: bool) -> None:
        """So many updates of so many lanes, with so many real target tokens in all lanes.

        A chunk that compiles its program counts in no rate.
        """
        if not compiles:
            self._updates += updates * lanes
            self._tokens += tokens
            self._seconds += seconds
        self.chunk = max(1, min(2 * self.chunk, round(CHUNK_SECONDS * updates / max(seconds, 1e-9))))

    def words(self) -> str:
        """The rates, summed over lanes; start anew."""
        updates, tokens, seconds = self._updates, self._tokens, self._seconds
        self._start()
        if not seconds:
            return "compiling"
        rate = updates / seconds
        return f"{rate:,.{0 if rate >= 10 else 1}f} lane-steps/s, {round(tokens / seconds):,} tokens/s"
