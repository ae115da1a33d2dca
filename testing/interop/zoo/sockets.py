"""A WebSocket server that sends back each message as one of the same kind."""

import asyncio
import sys

from websockets.asyncio.server import serve


async def echo(socket):
    async for message in socket:
        await socket.send(message)


async def main():
    async with serve(echo, "127.0.0.1", int(sys.argv[1]), max_size=64 << 20):
        await asyncio.Event().wait()


asyncio.run(main())
