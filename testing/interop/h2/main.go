// An HTTP/2 server that echoes bodies as they come and ends with trailers, as gRPC services do.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	var protocols http.Protocols
	server := &http.Server{Handler: http.HandlerFunc(echo), Protocols: &protocols}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	if len(os.Args) == 3 {
		protocols.SetHTTP2(true)
		log.Fatal(server.ServeTLS(listener, os.Args[1], os.Args[2]))
	}
	protocols.SetUnencryptedHTTP2(true)
	log.Fatal(server.Serve(listener))
}

func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("X-Proto", r.Proto)
	w.Header().Set("X-Seen-For", r.Header.Get("X-Forwarded-For"))
	w.Header().Set("X-Seen-Te", r.Header.Get("Te"))
	w.Header().Set("X-Seen-Host", r.Host)
	w.Header().Set("Trailer", "Grpc-Status, X-Length")
	w.WriteHeader(http.StatusOK)
	flusher := w.(http.Flusher)
	flusher.Flush()
	buffer := make([]byte, 64<<10)
	length := 0
	for {
		n, err := r.Body.Read(buffer)
		length += n
		if n > 0 {
			if _, failed := w.Write(buffer[:n]); failed != nil {
				return
			}
			flusher.Flush()
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return
		}
	}
	w.Header().Set("Grpc-Status", "0")
	w.Header().Set("X-Length", fmt.Sprint(length))
}
