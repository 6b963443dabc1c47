"""A GPU that workers and `models show` seem to have, in processes of their own."""

from __future__ import annotations

import os
from pathlib import Path

from localspec.models.catalogue import bundled_model
from localspec.models.fit import device_bytes
from localspec.models.model import model_at
from localspec.protocol.requests import EngineConfig

SITE = """
import sys
if {{"localspec.worker", "show"}} & {{*sys.orig_argv}}:
    from localspec.backends.llama_cpp import native
    from localspec.models import machine
    machine.has_device_code = lambda format: True
    native.list_gpus = lambda: {{1: native.Device("gpu", "Some GPU")}}
    native.room_on_gpus = dict
    native.free_bytes = lambda config: {free}
"""
WHERE = "5 of 7 layers on Some GPU"
"""the place of the bundled target"""


def python_path(folder: Path, n_ctx: int = 0) -> str:
    """The PYTHONPATH by which a GPU has not quite the memory for the bundled target with a sequence."""
    config = EngineConfig(prefill_chunk=512, parallel=1, n_ctx=n_ctx)
    free = device_bytes(model_at(bundled_model("stdlib-6m")), config) - 1
    (folder / "sitecustomize.py").write_text(SITE.format(free=free))
    return os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
