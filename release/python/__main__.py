"""Starts the program of this package: `python -m sabir`."""

import os
import sys
import sysconfig


def find_program() -> str:
    """Returns the path of the program, wherever pip has put it."""
    schemes = [sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")]
    folders = [sysconfig.get_path("scripts", scheme) for scheme in schemes]
    for folder in folders:
        program = os.path.join(folder, "sabir")
        if os.path.isfile(program):
            return program
    sys.exit(f"sabir: the program is not in {' or '.join(folders)}; install the package again")


if __name__ == "__main__":
    program = find_program()
    os.execv(program, [program, *sys.argv[1:]])
