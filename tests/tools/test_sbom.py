"""The bill of materials of an image."""

from __future__ import annotations

import zipfile

from tools.sbom import bill, component, jars, packages_of_debian, packages_of_python


def test_packages_of_debian_that_are_installed_are_listed_with_their_versions():
    status = (
        "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.36-9+deb12u10\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 1:2~3\n"
    )
    assert [one["purl"] for one in packages_of_debian(status)] == ["pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64"]


def test_packages_of_python_have_their_normalized_names(tmp_path):
    info = tmp_path / "lib/python3.13/site-packages/Some_Pkg-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Some_Pkg\nVersion: 1.2\n")
    assert [one["purl"] for one in packages_of_python(tmp_path)] == ["pkg:pypi/some-pkg@1.2"]


def test_a_jar_has_the_name_that_it_gives_itself_and_its_checksum(tmp_path):
    with zipfile.ZipFile(tmp_path / "a-b-1.0.jar", "w") as jar:
        jar.writestr("META-INF/maven/org.x/a-b/pom.properties", "groupId=org.x\nartifactId=a-b\nversion=1.0\n")
    zipfile.ZipFile(tmp_path / "plain-2.0.jar", "w").close()
    found = list(jars(tmp_path))
    assert [one["purl"] for one in found] == ["pkg:maven/org.x/a-b@1.0", "pkg:generic/plain@2.0"]
    assert all(len(one["hashes"][0]["content"]) == 64 for one in found)


def test_a_component_is_listed_once_in_order_and_the_image_has_efos_version():
    parts = [component("pypi", "", name, "1") for name in ("efo", "b", "a", "b")]
    document = bill(parts)
    assert [one["name"] for one in document["components"]] == ["a", "b", "efo"]
    assert document["metadata"]["component"]["version"] == "1"
