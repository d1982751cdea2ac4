"""Models that cannot be found: no network, no transformers, no folder."""

from pathlib import Path

import pytest

from linbench.common.errors import UserError
from linbench.engine.pretrained import folder
from linbench.engine.pretrained.folder import MAPPING, ModelFolder, find_folder, require_transformers


def test_without_transformers_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"linbench\[transformers\]"):
        require_transformers()
    with pytest.raises(UserError, match=r"linbench\[transformers\]"):
        find_folder("somebody/some-model")


@pytest.mark.parametrize(
    "name", ["./no-such-folder", "/no/such/folder", "no/such/folder", "~/no-such-folder", " "]
)
def test_a_path_that_is_not_there_is_not_looked_for_elsewhere(name: str) -> None:
    with pytest.raises(UserError, match="no folder"):
        find_folder(name)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("")
    with pytest.raises(UserError, match="is a file"):
        find_folder(str(tmp_path / "model"))


@pytest.mark.parametrize("way", ["offline", "a proxy that is closed"])
def test_without_network_an_id_is_refused_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", way == "offline")
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    hub.close_session()
    with pytest.raises(UserError, match="try again with a network") as refused:
        find_folder("somebody/some-model")
    hub.close_session()
    assert "\n" not in str(refused.value)


def test_a_name_that_is_no_id_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub")
    with pytest.raises(UserError, match="nor the id"):
        find_folder("two words")


def test_tokens_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    assert ModelFolder(tmp_path, "model").mapping() is None
    (tmp_path / MAPPING).write_text('{"task": "mqar", "inputs": [0], "answers": ["1"]}')
    with pytest.raises(UserError, match="export"):
        ModelFolder(tmp_path, "model").mapping()
