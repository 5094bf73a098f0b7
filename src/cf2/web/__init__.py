"""The local page: look at explanations, remove edges and features, and see what the model says then."""

import warnings

from cf2.errors import CF2Error, extra

try:
    with warnings.catch_warnings():
        # Dash's own modules use things that it deprecates; none of it is ours to change.
        warnings.simplefilter("ignore", DeprecationWarning)
        import dash, dash_cytoscape, waitress  # noqa: E401, F401, I001
except ImportError as error:
    packages = "Expected dash, dash-cytoscape and waitress to be installed"
    raise CF2Error(packages, got="one that is missing", do=extra("web")) from error

from cf2.web.app import build_app, serve

__all__ = ["build_app", "serve"]
