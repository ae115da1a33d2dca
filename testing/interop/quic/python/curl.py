"""curl_cffi's HTTP/3 (curl with ngtcp2) before `gt proxy`.

    curl.py PORT    asks 127.0.0.1:PORT in every way, prints "ok NAME" for each, or ends with 1
"""

import sys

from curl_cffi import CurlHttpVersion, CurlOpt, requests

PORT = int(sys.argv[1])
SITE = f"https://gt.test:{PORT}"
ONLY = CurlHttpVersion.V3ONLY


def session(**more):
    options = {CurlOpt.RESOLVE: [f"gt.test:{PORT}:127.0.0.1".encode()]}
    return requests.Session(verify=False, curl_options=options, timeout=60, **more)


def expect(seen, wanted):
    if seen != wanted:
        raise SystemExit(f"{str(seen)[:200]!r} instead of {str(wanted)[:200]!r}")


def ask(client, method, path, version=ONLY, **more):
    answer = client.request(method, SITE + path, http_version=version, **more)
    expect(answer.status_code, 200)
    return answer


def get(client):
    for _ in range(20):
        answer = ask(client, "GET", "/")
        expect((answer.http_version, "a page" in answer.text), (CurlHttpVersion.V3, True))


def large(client):
    expect(len(ask(client, "GET", "/bytes/20000000").content), 20_000_000)


def post(client):
    expect(ask(client, "POST", "/length", data=b"x" * 5_000_000).text, "5000000")
    expect(ask(client, "PUT", "/echo", data=b"some").text, "PUT some")
    expect(ask(client, "POST", "/length", data=b"").text, "0")


def head(client):
    answer = ask(client, "HEAD", "/bytes/1000")
    expect((answer.headers["content-length"], answer.content), ("1000", b""))


def browsers(_):
    for name in ("chrome", "firefox"):
        with session(impersonate=name) as client:
            expect("a page" in ask(client, "GET", "/").text, True)


def upgrade(_):
    with session() as client:
        told = ask(client, "GET", "/", CurlHttpVersion.V2TLS)
        expect((told.http_version, told.headers["alt-svc"].split(";")[0]), (CurlHttpVersion.V2_0, f'h3=":{PORT}"'))
        # HTTP/3 beside TCP: the first to answer is taken.
        expect("a page" in ask(client, "GET", "/", CurlHttpVersion.V3).text, True)


with session() as one:
    for step in (get, large, post, head, browsers, upgrade):
        step(one)
        print("ok", step.__name__, flush=True)
