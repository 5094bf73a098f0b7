"""`python -m cf2` and the `cf2` command."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line; mistakes end in one clear sentence."""
    try:
        from cf2.cli.commands import app
        from cf2.cli.terminal import guarded

        guarded(app)
    except KeyboardInterrupt:  # while it starts or ends
        raise SystemExit(128 + signal.SIGINT) from None
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # what Python still does at its end is no place for a traceback


if __name__ == "__main__":
    main()
