"""The WSGI origin: gunicorn and waitress."""

import sys

from report import report


def app(environ, start_response):
    body = environ["wsgi.input"].read()
    target = environ.get("RAW_URI") or environ.get("REQUEST_URI")
    # A body that was cut off is no request.
    length = environ.get("CONTENT_LENGTH")
    if not length or int(length) == len(body):
        report(environ["REQUEST_METHOD"].encode("latin-1"), target.encode("latin-1"), body)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "3")])
    return [b"" if environ["REQUEST_METHOD"] == "HEAD" else b"ok\n"]


if __name__ == "__main__":
    import waitress

    waitress.serve(app, host="127.0.0.1", port=int(sys.argv[1]), threads=4)
