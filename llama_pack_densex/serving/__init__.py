"""An index over HTTP: answers, passages and conversations as JSON and events, and one page to ask on.

`make_app` makes a FastAPI application of a pack; `guard` decides which requests reach it, and `page/` holds the page's
markup, style, script and words. Needs the extra `serve` (`pip install "llama-pack-densex[serve]"`).
"""

try:
    from llama_pack_densex.serving.app import listen, make_app, serve_app
except ModuleNotFoundError as error:
    if error.name not in ("fastapi", "starlette", "uvicorn"):
        raise
    raise ImportError(
        f'serving needs the package {error.name}: install it with: pip install "llama-pack-densex[serve]"'
    ) from error

__all__ = ["listen", "make_app", "serve_app"]
