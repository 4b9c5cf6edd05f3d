"""runnel from Python: calls to a server, bundles, and the conversion of checkpoints.

    from runnel_client import Client

    with Client("127.0.0.1:50051") as client:
        for text in client.generate("The river", model="text-small", max_values=200).text():
            print(text, end="", flush=True)

`runnel_client.aio` has the same calls for asyncio, and `runnel_client.errors` has the exceptions.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runnel_client.access import Access
    from runnel_client.client import Client, Generation, Session
    from runnel_client.options import Options
    from runnel_client.retry import Retry

__version__ = "0.2.0"
__all__ = ["Access", "Client", "Generation", "Options", "Retry", "Session"]

_MODULES = {
    "Access": "access",
    "Client": "client",
    "Generation": "client",
    "Options": "options",
    "Retry": "retry",
    "Session": "client",
}


def __getattr__(name: str) -> Any:
    """Loads a class when it is first used, so that tools that need no gRPC run without it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
