"""GGUF models through llama-cpp-python's low-level API."""

import os

SPINS = "1000"
"""rounds in which a thread waits for another before it sleeps. Beside a program that keeps one of 2 cores
busy a 0.5B gives 19 tok/s, with libgomp's default 3; two models at once, of 0.5B and 1.5B, without turns, 17
and 14 instead of 2 to 8 and 2 to 7. Alone they give 44 and 27.9 instead of 46 and 28.7; with 300 rounds 45
and 26.5"""

if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
    # libgomp reads it once, when llama.cpp is loaded.
    os.environ["GOMP_SPINCOUNT"] = SPINS
