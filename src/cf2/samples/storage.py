"""Where raw files are found, and whether they are intact.

Raw files are only ever read from the data root, which may be read-only. Downloads go to the cache directory. Files of
TUDataset and Planetoid are read only if their SHA-256 is the known one: then torch_geometric's readers, which trust
what they read and unpickle some of it, get exactly the bytes that they were tried on.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import platformdirs
import pooch

from cf2.errors import CF2Error, require_file
from cf2.storage import fingerprint

Root = str | Path | None  # of the raw files

MAX_FILE_BYTES = 2 << 30  # of a raw file, and of what an archive holds
URLS = {  # by collection of torch_geometric: of one archive that holds NAME/, or of each file
    "TUDataset": "https://www.chrsmrrs.com/graphkerneldatasets/{name}.zip",
    "Planetoid": "https://github.com/kimiyoung/planetoid/raw/master/data/{file}",
}


def cache_directory() -> Path:
    """The directory that the system keeps for caches: on Linux `$XDG_CACHE_HOME/cf2`, or `~/.cache/cf2`."""
    return platformdirs.user_cache_path("cf2")


def data_root(root: Root) -> Path:
    """The directory of the raw files: the argument, else `CF2_DATA`, else the cache directory."""
    if root is None:
        root = os.environ.get("CF2_DATA") or cache_directory()
    try:
        return Path(root).expanduser()
    except RuntimeError as error:
        raise CF2Error("Expected a directory for the raw files", got=f"{str(root)!r} ({error})") from error


@cache
def known_digests(family: str, name: str) -> dict[str, str]:
    """The SHA-256 of each raw file of a set, by its name."""
    rows = (line.split() for line in (Path(__file__).parent / "digests.txt").read_text().splitlines())
    return {path.rpartition("/")[2]: digest for path, digest in rows if path.startswith(f"{family}/{name}/")}


def raw_directory(root: Root, family: str, name: str) -> Path:
    """The directory with the raw files of a set of a collection, all and intact; downloaded if none is anywhere."""
    digests = known_digests(family, name)
    first = next(iter(digests))
    folders = [data_root(root) / family / name / "raw", data_root(root) / name / "raw"]
    cached = cache_directory() / family / name / "raw"
    for folder in [*folders, cached]:
        missing = [file for file in digests if not (folder / file).exists()]
        if not missing:
            for file in _damaged(folder, digests):
                raise CF2Error(
                    f"Expected {folder / file} to have SHA-256 {digests[file][:16]}…",
                    got=f"{fingerprint(folder / file, digits=16)}… ({(folder / file).stat().st_size} bytes)",
                    do="The file is corrupted or truncated: delete it and get it again.",
                )
            return folder
        if len(missing) < len(digests):
            raise CF2Error(
                f"Expected the raw file {folder / missing[0]} of {name}, and it is missing",
                do=f"Put it there, or delete {folder} so that all of them are downloaded again.",
            )
    try:
        _download(family, name, cached, digests)
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise CF2Error(
            f"Expected the raw file {folders[0] / first} of {name}; it is missing "
            f"and could not be downloaded ({error})",
            do=f"Put the raw files of torch_geometric's {family} into {folders[0]}, "
            f"or set CF2_DATA (--data-root) to the directory that holds {family}/{name}/raw.",
        ) from error
    return cached


def _download(family: str, name: str, cached: Path, digests: Mapping[str, str]) -> None:
    """Make the directory `cached` with files that are all there and intact, or leave nothing behind."""
    cache_directory().mkdir(parents=True, exist_ok=True)
    log = pooch.get_logger()
    level = log.level
    log.setLevel("ERROR")  # it would report every file on stderr
    try:
        with tempfile.TemporaryDirectory(dir=cache_directory()) as folder:
            raw = Path(folder) / name
            for url in dict.fromkeys(URLS[family].format(name=name, file=file) for file in digests):
                if url.endswith(".zip"):
                    pooch.retrieve(url, None, fname=f"{name}.zip", path=folder, processor=_unzip)
                else:
                    file = url.rpartition("/")[2]
                    pooch.retrieve(url, digests[file], fname=file, path=raw)
            faults = [file for file in digests if not (raw / file).is_file()] or _damaged(raw, digests)
            if faults:  # an archive has no known SHA-256 of its own
                raise ValueError(f"{faults[0]} is damaged or missing in what {URLS[family]} gave")
            cached.parent.mkdir(parents=True, exist_ok=True)
            os.rename(raw, cached)
    finally:
        log.setLevel(level)


def _unzip(path: str, action: str, pool: object) -> None:
    """Unpack an archive beside itself, unless it holds far more than a data set does."""
    with zipfile.ZipFile(path) as archive:
        size = sum(member.file_size for member in archive.infolist())
        if size > MAX_FILE_BYTES:
            raise ValueError(f"{Path(path).name} would take {size:,} bytes")
        archive.extractall(Path(path).parent)


def _damaged(directory: Path, digests: Mapping[str, str]) -> list[str]:
    """The files that are not the known ones; a pipe, which would never end, is refused before it is opened."""
    for file in digests:
        require_raw_file(directory / file)
    return [file for file, expected in digests.items() if fingerprint(directory / file) != expected]


def require_raw_file(path: Path) -> None:
    require_file(path, f"{path} to be a raw file", most=MAX_FILE_BYTES, do="Delete it and get it again.")
