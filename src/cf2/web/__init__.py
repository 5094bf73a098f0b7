"""The local page: look at explanations, remove edges and features, and see what the model says then."""

from cf2.errors import CF2Error, extra

try:
    import flask, waitress  # noqa: E401, F401, I001
except ImportError as error:
    raise CF2Error("Expected flask and waitress to be installed", got="one that is missing", do=extra("web")) from error

from cf2.web.app import build_app, serve

__all__ = ["build_app", "serve"]
