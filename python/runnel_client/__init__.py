"""runnel from Python: calls to a server, bundles, and the conversion of checkpoints.

    from runnel_client import Client

    with Client("127.0.0.1:50051") as client:
        for text in client.generate("The river", model="text-small", max_values=200).text():
            print(text, end="", flush=True)

`runnel_client.aio` has the same for asyncio, `runnel_client.errors` what calls raise.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runnel_client.access import Access
    from runnel_client.client import Client, Generation, Session
    from runnel_client.retry import Retry

__all__ = ["Access", "Client", "Generation", "Retry", "Session"]

_MODULES = {"Access": "access", "Client": "client", "Generation": "client", "Retry": "retry", "Session": "client"}


def __getattr__(name: str) -> Any:
    """Loads a class when it is first asked for, so that a tool can say what to install where gRPC is missing."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
