"""Plans for tests."""

from typing import Any

import pytest
from conftest import ROOT

from train.errors import UserError
from train.plan import make_plan

BASE = ROOT / "configs" / "base.py"


def refused(*arguments: Any, **keywords: Any) -> str:
    """The one line with which a plan is refused."""
    with pytest.raises(UserError) as caught:
        make_plan(*arguments, **keywords)
    line = str(caught.value)
    assert "\n" not in line
    return line
