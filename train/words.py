"""Numbers in words, for what is printed."""


def counted(number: int, noun: str) -> str:
    """As people write it: "1 lane", "2 lanes", "50,000 blank lines"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
