"""The tornado origin."""

import asyncio
import sys

from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPHeaders, ResponseStartLine

from report import report


def handle(request):
    report(request.method.encode("latin-1"), request.uri.encode("latin-1"), request.body)
    start = ResponseStartLine("HTTP/1.1", 200, "OK")
    request.connection.write_headers(start, HTTPHeaders({"Content-Length": "3"}), b"" if request.method == "HEAD" else b"ok\n")
    request.connection.finish()


async def main():
    HTTPServer(handle).listen(int(sys.argv[1]), "127.0.0.1")
    await asyncio.Event().wait()


asyncio.run(main())
