"""The ASGI origin: uvicorn."""

from report import report


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    target = scope["raw_path"]
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    report(scope["method"].encode("latin-1"), target, body)
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"3")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else b"ok\n"})
