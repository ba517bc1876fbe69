"""Builds the wheel and the source archive, with what Python brings along: nothing has to be fetched for that (PEP 517)."""

import base64
import hashlib
import io
import os
import tarfile
import zipfile

NAME = "watchbell"
VERSION = "0.1.0"
HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = ("LICENSE", "README.md", "backend.py", "pyproject.toml")
# The earliest that a zip archive can tell: what is built depends on the files alone.
DATE = (1980, 1, 1, 0, 0, 0)

METADATA = f"""\
Metadata-Version: 2.1
Name: {NAME}
Version: {VERSION}
Summary: Client and worker of Watchbell, a distributed scheduler
License: Apache-2.0
Requires-Python: >=3.9
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: OS Independent
Classifier: Programming Language :: Python :: 3
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

"""

WHEEL = """\
Wheel-Version: 1.0
Generator: watchbell
Root-Is-Purelib: true
Tag: py3-none-any
"""


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """The package, as pip installs it."""
    info = f"{NAME}-{VERSION}.dist-info"
    files = {f"{NAME}/{name}": _read("src", NAME, name) for name in _package()}
    files[f"{info}/METADATA"] = _metadata()
    files[f"{info}/WHEEL"] = WHEEL.encode()
    files[f"{info}/LICENSE"] = _read("LICENSE")
    record = "".join(f"{path},{_digest(data)},{len(data)}\n" for path, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    name = f"{NAME}-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, DATE)
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return name


def build_sdist(sdist_directory, config_settings=None):
    """What the wheel is built from."""
    top = f"{NAME}-{VERSION}"
    files = {name: _read(name) for name in SOURCES}
    files.update({f"src/{NAME}/{name}": _read("src", NAME, name) for name in _package()})
    files["PKG-INFO"] = _metadata()
    with tarfile.open(os.path.join(sdist_directory, f"{top}.tar.gz"), "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for path, data in files.items():
            entry = tarfile.TarInfo(f"{top}/{path}")
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return f"{top}.tar.gz"


def _package():
    names = os.listdir(os.path.join(HERE, "src", NAME))
    return sorted(name for name in names if name.endswith((".py", ".typed")))


def _metadata():
    return METADATA.encode() + _read("README.md")


def _read(*parts):
    with open(os.path.join(HERE, *parts), "rb") as file:
        return file.read()


def _digest(data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return f"sha256={digest.decode().rstrip('=')}"
