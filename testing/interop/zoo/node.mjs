// The origin on node's own HTTP server; see README.md.
import http from "node:http";

const MOST = 400;

http.createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("error", () => {});
  request.on("end", () => {
    const body = Buffer.concat(parts);
    const hex = (bytes) => bytes.toString("hex") || "-";
    const words = [hex(Buffer.from(request.method)), hex(Buffer.from(request.url, "latin1")), body.length, hex(body.subarray(0, MOST))];
    console.log("ZOO " + words.join(" "));
    response.writeHead(200, { "Content-Type": "text/plain", "Content-Length": 3 });
    response.end(request.method === "HEAD" ? undefined : "ok\n");
  });
}).listen(Number(process.argv[2]), "127.0.0.1");
