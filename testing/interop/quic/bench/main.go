// Command bench is quic-go's http3.Server doing what the bench's server on crate quic does: GET /N is answered with N bytes, PUT with the number of bytes that came.
//
//	bench host:port CERTIFICATE.pem KEY.pem
//	bench version
package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// What is written at a time where a body is long.
const portion = 64 << 10

var filling = make([]byte, portion)

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "version":
		fmt.Println(version())
	case len(os.Args) == 4:
		err = serve(os.Args[1], os.Args[2], os.Args[3])
	default:
		err = fmt.Errorf("usage: bench host:port CERTIFICATE.pem KEY.pem | bench version")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "failed:", err)
		os.Exit(1)
	}
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/quic-go/quic-go" {
				return module.Version + ", " + runtime.Version()
			}
		}
	}
	return "?"
}

func serve(address, certificate, key string) error {
	for i := range filling {
		filling[i] = 'x'
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	socket, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	server := http3.Server{
		Handler:   http.HandlerFunc(handle),
		TLSConfig: http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{pair}}),
		// Windows as large as the other server's.
		QUICConfig: &quic.Config{Allow0RTT: true, MaxStreamReceiveWindow: 8 << 20, MaxConnectionReceiveWindow: 16 << 20},
	}
	return server.Serve(socket)
}

func handle(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut {
		n, err := io.Copy(io.Discard, r.Body)
		if err == nil {
			fmt.Fprint(w, n)
		}
		return
	}
	size, err := strconv.Atoi(r.URL.Path[1:])
	if err != nil || size < 0 {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(size))
	for size > 0 {
		n := min(size, portion)
		if _, err := w.Write(filling[:n]); err != nil {
			return
		}
		size -= n
	}
}
