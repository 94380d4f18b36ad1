import pathlib

import pytest

PROFILES = pathlib.Path(__file__).parents[2] / "profiles"


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A folder to work in, with a drive of half a GiB and a short PostMark run that frees what it wrote."""
    monkeypatch.chdir(tmp_path)
    text = (PROFILES / "sata-small.toml").read_text().replace("8_589_934_592", "536_870_912")
    (tmp_path / "small.toml").write_text(text)
    (tmp_path / "small.pmrc").write_text("set number 500\nset transactions 20000\nset size 1000 100000\nrun\n")
    return {"workload": "small.pmrc", "utilization_percent": 50, "memory_mib": 64, "seed": 3}
