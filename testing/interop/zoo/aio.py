"""The aiohttp origin."""

import asyncio
import sys

from aiohttp import web

from report import report


async def handle(request):
    body = await request.read()
    report(request.method.encode("latin-1", "surrogateescape"), request.raw_path.encode("utf-8", "surrogateescape"), body)
    return web.Response(text="ok\n")


async def main():
    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(sys.argv[1])).start()
    await asyncio.Event().wait()


asyncio.run(main())
