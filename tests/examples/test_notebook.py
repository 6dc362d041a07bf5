"""The notebook: a kernel runs its cells in their order, each ends without an error, and some show what they must."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tests.paths import ROOT

NOTEBOOK = ROOT / "examples/notebook/kinesis.ipynb"
SHOWN = ["500", "500", "500", "600", "0"]
"""What the cells show that end with a number: records put, read, in the log, in windows, and the exit status."""


@pytest.mark.page
def test_the_notebook_runs_from_its_first_cell_to_its_last(tmp_path):
    manager = pytest.importorskip("jupyter_client.manager").KernelManager()
    pytest.importorskip("ipykernel")
    command = [sys.executable, "-m", "ipykernel", "-f", "{connection_file}"]
    manager._kernel_spec = pytest.importorskip("jupyter_client.kernelspec").KernelSpec(argv=command, language="python")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "EFO_"))}
    manager.start_kernel(env={**environment, "HOME": str(tmp_path)}, cwd=tmp_path)
    client = manager.client()
    client.start_channels()
    shown: list[str] = []
    cells = json.loads(NOTEBOOK.read_text())["cells"]

    def show(message):
        if message["msg_type"] == "execute_result":
            shown.append(message["content"]["data"]["text/plain"])

    try:
        client.wait_for_ready(timeout=120)
        for code in ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"):
            reply = client.execute_interactive(code, timeout=120, output_hook=show)["content"]
            assert reply["status"] == "ok", f"{code}\n{reply.get('ename')}: {reply.get('evalue')}"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert [text for text in shown if text.isdigit()] == SHOWN
    assert any("{'customer': 'customer-0', 'cents_sum': " in text for text in shown)


def test_the_notebook_has_no_output_and_names_no_kernel_of_a_machine():
    notebook = json.loads(NOTEBOOK.read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [(cell["outputs"], cell["execution_count"]) for cell in code] == [([], None)] * len(code)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
