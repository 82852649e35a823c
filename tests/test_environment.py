import json

import jax
import pytest

from train.environment import describe, git_revision, use_compilation_cache


def test_the_description_is_plain_data_with_versions_and_device():
    record = json.loads(json.dumps(describe()))
    assert record["versions"]["jax"] == jax.__version__
    assert record["device"]["platform"] == "cpu"


def test_outside_a_repository_there_is_no_revision(monkeypatch):
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    assert git_revision() is None


@pytest.mark.parametrize("chosen", [None, "elsewhere"])
def test_the_cache_is_in_the_users_directory_unless_another_was_chosen(monkeypatch, tmp_path, chosen):
    before = jax.config.values["jax_compilation_cache_dir"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        jax.config.update("jax_compilation_cache_dir", chosen)
        use_compilation_cache()
        expected = chosen or str(tmp_path / "dk-lab" / "jax")
        assert jax.config.values["jax_compilation_cache_dir"] == expected
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
