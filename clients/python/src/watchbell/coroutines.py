"""An event loop of a worker's own, in a thread of its own, for handlers that are coroutines."""

from __future__ import annotations

import asyncio
import threading


class OwnLoop:
    """Runs until it is told to stop, and then cancels what is left."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._serve, name=f"{name}-loop", daemon=True)
        thread.start()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)

    def _serve(self) -> None:
        loop = self.loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks, timeout=1.0))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
