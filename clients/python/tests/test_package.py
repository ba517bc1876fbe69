"""The wheel, as a stranger has it: built without a network, and installed where nothing else is."""

import ast
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile

from server import SOURCE

ROOT = os.path.dirname(SOURCE)
# What would lead pip to a network, or to other packages.
BARE = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
BARE.update(PIP_NO_INDEX="1", PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_CONFIG_FILE=os.devnull)


def run(*command):
    done = subprocess.run(command, env=BARE, capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory(prefix="watchbell-package-")
        cls.addClassCleanup(cls.dir.cleanup)
        venv = os.path.join(cls.dir.name, "venv")
        run(sys.executable, "-m", "venv", venv)
        cls.python = os.path.join(venv, "bin", "python3")
        dist = os.path.join(cls.dir.name, "dist")
        run(cls.python, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", dist, ROOT)
        names = os.listdir(dist)
        assert len(names) == 1, names
        cls.wheel = os.path.join(dist, names[0])
        run(cls.python, "-m", "pip", "install", cls.wheel)

    def test_the_wheel_has_the_library_and_nothing_else(self):
        package = [name for name in os.listdir(os.path.join(SOURCE, "watchbell")) if not name.startswith("__pyc")]
        with zipfile.ZipFile(self.wheel) as wheel:
            self.assertIsNone(wheel.testzip())
            names = [name for name in wheel.namelist() if name.startswith("watchbell/")]
        self.assertEqual(sorted(names), sorted(f"watchbell/{name}" for name in package))
        self.assertIn("watchbell/py.typed", names)

    def test_what_is_installed_is_imported_and_says_its_version(self):
        told = run(self.python, "-c", "import watchbell; print(watchbell.__file__, watchbell.Worker, watchbell.Client)")
        self.assertIn(self.dir.name, told)
        shown = run(self.python, "-m", "pip", "show", "watchbell")
        self.assertIn("Version: 0.1.0\n", shown)
        self.assertIn("Requires: \n", shown)
        run(self.python, "-m", "pip", "check")

    def test_the_source_archive_builds_the_same_wheel(self):
        code = "import backend, sys; print(backend.build_sdist(sys.argv[1]))"
        place = self.dir.name
        done = subprocess.run([sys.executable, "-c", code, place], cwd=ROOT, capture_output=True, text=True, check=True)
        again = os.path.join(place, "again")
        archive = os.path.join(place, done.stdout.strip())
        run(self.python, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", again, archive)
        with open(self.wheel, "rb") as one, open(os.path.join(again, os.path.basename(self.wheel)), "rb") as other:
            self.assertEqual(one.read(), other.read())

    def test_the_code_is_that_of_python_3_9(self):
        for name in os.listdir(os.path.join(SOURCE, "watchbell")):
            if name.endswith(".py"):
                with open(os.path.join(SOURCE, "watchbell", name), encoding="utf-8") as file:
                    ast.parse(file.read(), name, feature_version=(3, 9))


if __name__ == "__main__":
    unittest.main()
