"""`python -m cf2` and the `cf2` command."""

from __future__ import annotations

from cf2.cli.commands import app
from cf2.cli.terminal import guarded


def main() -> None:
    """Run the command line; mistakes end in one clear sentence."""
    guarded(app)


if __name__ == "__main__":
    main()
