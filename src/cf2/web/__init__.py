"""The local page: look at explanations, remove edges and features, and see what the model says then."""

from cf2.web.app import build_app
from cf2.web.server import serve

__all__ = ["build_app", "serve"]
