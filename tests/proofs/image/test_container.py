"""How an image is run: what runc is reported, and what is read of the log it wrote."""

from __future__ import annotations

from proofs.image.checks import relayed
from proofs.image.container import Container
from proofs.image.engine import Image

CONFIG = {
    "User": "10001:10001",
    "Env": ["A=1"],
    "WorkingDir": "/var/lib/efo",
    "Volumes": {"/var/lib/efo": {}},
    "Entrypoint": ["efo"],
    "Cmd": ["run"],
    "Healthcheck": {"Test": ["CMD", "efo", "healthcheck"]},
}


def test_a_container_is_read_only_has_no_rights_and_the_user_of_the_image(tmp_path):
    image = Image("x", tmp_path / "root", CONFIG, "c")
    found = Container(image, tmp_path, tmp_path / "volume").specification(image.start, {"B": "2"})
    process = found["process"]
    assert (process["user"], process["args"]) == ({"uid": 10001, "gid": 10001}, ["efo", "run"])
    assert (process["env"], process["noNewPrivileges"]) == (["A=1", "B=2"], True)
    assert set(map(tuple, process["capabilities"].values())) == {()}
    assert found["root"] == {"path": str(tmp_path / "root"), "readonly": True}
    writable = [one["destination"] for one in found["mounts"] if "rw" in one["options"]]
    assert writable == ["/var/lib/efo"]


def test_an_image_without_a_health_check_has_no_words_of_it(tmp_path):
    assert Image("x", tmp_path, CONFIG, "c").health == ["efo", "healthcheck"]
    for test in (None, {"Test": ["NONE"]}):
        assert Image("x", tmp_path, {**CONFIG, "Healthcheck": test}, "c").health == []


def test_the_records_of_a_log_are_counted_by_the_names_of_its_segments(tmp_path):
    for name in ("0-10.arrow", "10-25.x.arrow", "other.txt"):
        (tmp_path / name).touch()
    assert relayed(tmp_path) == 25
