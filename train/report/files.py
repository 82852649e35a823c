"""Files that a command is to write: refused before any work where they cannot be written, or must not be."""

from pathlib import Path

from train.errors import UserError
from train.log import CONFIG, DIAGNOSTICS, METRICS

OF_STUDIES = (CONFIG, METRICS, DIAGNOSTICS)


def check_files(**paths: Path | None) -> None:
    """Raises UserError. paths: by the flag that names the file; None where the flag was not given."""
    flags: dict[Path, str] = {}
    for flag, path in paths.items():
        if path is None:
            continue
        if not path.parent.is_dir():
            raise UserError(f"--{flag}={path}: there is no folder {path.parent}")
        if path.is_dir():
            raise UserError(f"--{flag}={path}: is a folder; name a file")
        if path.name in OF_STUDIES:
            raise UserError(f"--{flag}={path}: studies have files of this name; choose another")
        other = flags.setdefault(path.resolve(), flag)
        if other != flag:
            raise UserError(f"--{other} and --{flag} name the same file, {path}; choose two")
