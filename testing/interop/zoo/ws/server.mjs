// A WebSocket server that sends back each message as one of the same kind; compresses where the visitor offers it.
import { createRequire } from "node:module";

// The package is installed below the target directory, named by the second argument.
const { WebSocketServer } = createRequire(process.argv[3] + "/package.json")("ws");

const server = new WebSocketServer({
  host: "127.0.0.1",
  port: Number(process.argv[2]),
  maxPayload: 64 << 20,
  perMessageDeflate: { threshold: 0 },
});
server.on("connection", (socket) => {
  socket.on("message", (data, binary) => socket.send(data, { binary }));
  socket.on("error", () => {});
});
