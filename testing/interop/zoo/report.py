"""What all origins in Python say about a request, on one line of standard output; see README.md."""

import sys

MOST = 400


def report(method, target, body):
    """`method` and `target` as bytes, as the server understood them."""
    words = [method.hex() or "-", target.hex() or "-", str(len(body)), body[:MOST].hex() or "-"]
    sys.stdout.write("ZOO " + " ".join(words) + "\n")
    sys.stdout.flush()
