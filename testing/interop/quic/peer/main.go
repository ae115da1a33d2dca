// Command peer is quic-go's HTTP/3, as a server or as a client that checks another server.
//
//	peer server            listens on a port of 127.0.0.1, prints it, serves until its input ends
//	peer client host:port  asks that server in every way, prints "ok NAME" for each, or why not and exits with 1
package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "server":
		err = serve()
	case len(os.Args) == 3 && os.Args[1] == "client":
		err = check(os.Args[2])
	default:
		err = fmt.Errorf("usage: peer server | peer client host:port")
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func quicConfig() *quic.Config {
	return &quic.Config{Allow0RTT: true, EnableDatagrams: true, MaxIdleTimeout: 20 * time.Second}
}

func serve() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := http3.Server{
		Handler:         http.HandlerFunc(handle),
		TLSConfig:       http3.ConfigureTLSConfig(config),
		QUICConfig:      quicConfig(),
		EnableDatagrams: true,
	}
	go server.Serve(socket)
	fmt.Println(socket.LocalAddr().(*net.UDPAddr).Port)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func handle(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodConnect && r.Proto == "echo":
		w.WriteHeader(200)
		stream, err := w.(http3.HTTPStreamer).HTTPStream()
		if err != nil {
			return
		}
		go func() {
			for {
				payload, err := stream.ReceiveDatagram(context.Background())
				if err != nil {
					return
				}
				stream.SendDatagram(append([]byte("back "), payload...))
			}
		}()
		io.Copy(stream, stream)
		stream.Close()
	case r.URL.Path == "/about":
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprintf(w, "%s %s early=%v", r.Method, r.Proto, !r.TLS.HandshakeComplete)
	case r.URL.Path == "/echo":
		w.(http.Flusher).Flush()
		buffer := make([]byte, 32<<10)
		for {
			n, err := r.Body.Read(buffer)
			if _, failed := w.Write(buffer[:n]); failed != nil {
				return
			}
			w.(http.Flusher).Flush()
			if err != nil {
				break
			}
		}
	case r.URL.Path == "/trailers":
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Trailer", "X-End")
		io.WriteString(w, "seen "+r.Trailer.Get("X-End"))
		w.Header().Set("X-End", "yes")
	default:
		http.NotFound(w, r)
	}
}

func check(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	config := &tls.Config{InsecureSkipVerify: true, ServerName: "localhost", NextProtos: []string{http3.NextProtoH3}, ClientSessionCache: tls.NewLRUClientSessionCache(10)}
	steps := []struct {
		name string
		run  func(context.Context, string, *tls.Config) error
	}{
		{"methods", methods}, {"body", body}, {"trailers", trailers}, {"early", early}, {"datagrams", datagrams}, {"path", path},
	}
	for _, step := range steps {
		if err := step.run(ctx, address, config); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Println("ok", step.name)
	}
	return nil
}

func transport(config *tls.Config) *http3.Transport {
	return &http3.Transport{TLSClientConfig: config, QUICConfig: quicConfig(), EnableDatagrams: true}
}

func ask(ctx context.Context, tripper http.RoundTripper, method, url string, body io.Reader) (*http.Response, string, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, "", err
	}
	response, err := tripper.RoundTrip(request)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response, string(text), err
}

func methods(ctx context.Context, address string, config *tls.Config) error {
	tripper := transport(config)
	defer tripper.Close()
	for _, method := range []string{"GET", "POST", "DELETE", "PATCH", "HEAD"} {
		response, text, err := ask(ctx, tripper, method, "https://"+address+"/about", nil)
		if err != nil {
			return err
		}
		want := method + " HTTP/3.0 -"
		if method == "HEAD" {
			want = ""
		}
		if response.StatusCode != 200 || text != want {
			return fmt.Errorf("%s: %d %q", method, response.StatusCode, text)
		}
	}
	return nil
}

func pattern(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i % 251)
	}
	return data
}

func body(ctx context.Context, address string, config *tls.Config) error {
	tripper := transport(config)
	defer tripper.Close()
	data := pattern(5 << 20)
	_, text, err := ask(ctx, tripper, "POST", "https://"+address+"/echo", bytes.NewReader(data))
	if err == nil && text != string(data) {
		err = fmt.Errorf("%d bytes of %d came back", len(text), len(data))
	}
	return err
}

func trailers(ctx context.Context, address string, config *tls.Config) error {
	tripper := transport(config)
	defer tripper.Close()
	response, text, err := ask(ctx, tripper, "GET", "https://"+address+"/trailers", nil)
	if err != nil {
		return err
	}
	if text != "one two" || response.Trailer.Get("X-End") != "yes" {
		return fmt.Errorf("%q %v", text, response.Trailer)
	}
	request, err := http.NewRequestWithContext(ctx, "POST", "https://"+address+"/sum", strings.NewReader("ab"))
	if err != nil {
		return err
	}
	request.Trailer = http.Header{"X-End": {"yes"}}
	response, err = tripper.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	sum, err := io.ReadAll(response.Body)
	if err == nil && string(sum) != "2 195 yes" {
		err = fmt.Errorf("%q", sum)
	}
	return err
}

func early(ctx context.Context, address string, config *tls.Config) error {
	said := ""
	for range 20 {
		tripper := transport(config)
		_, text, err := ask(ctx, tripper, http3.MethodGet0RTT, "https://"+address+"/about", nil)
		tripper.Close()
		if err != nil {
			return err
		}
		if said = text; said == "GET HTTP/3.0 1" {
			return nil
		}
	}
	return fmt.Errorf("never early: %q", said)
}

func datagrams(ctx context.Context, address string, config *tls.Config) error {
	conn, err := quic.DialAddr(ctx, address, config, quicConfig())
	if err != nil {
		return err
	}
	defer conn.CloseWithError(0x100, "")
	client := transport(config).NewClientConn(conn)
	select {
	case <-client.ReceivedSettings():
	case <-ctx.Done():
		return fmt.Errorf("no settings")
	}
	settings := client.Settings()
	if !settings.EnableDatagrams || !settings.EnableExtendedConnect {
		return fmt.Errorf("settings %+v", settings)
	}
	stream, err := client.OpenRequestStream(ctx)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodConnect, "https://"+address+"/tunnel", nil)
	if err != nil {
		return err
	}
	request.Proto = "echo"
	if err := stream.SendRequestHeader(request); err != nil {
		return err
	}
	response, err := stream.ReadResponse()
	if err != nil {
		return err
	}
	if response.StatusCode != 200 {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	if _, err := stream.Write([]byte("through")); err != nil {
		return err
	}
	buffer := make([]byte, 7)
	if _, err := io.ReadFull(stream, buffer); err != nil || string(buffer) != "through" {
		return fmt.Errorf("%q %w", buffer, err)
	}
	for range 50 {
		if err := stream.SendDatagram([]byte("and")); err != nil {
			return err
		}
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		payload, err := stream.ReceiveDatagram(short)
		cancel()
		if err == nil {
			if string(payload) != "back and" {
				return fmt.Errorf("%q", payload)
			}
			return stream.Close()
		}
	}
	return fmt.Errorf("no datagram came back")
}

// path moves the connection to another socket while a body is under way.
func path(ctx context.Context, address string, config *tls.Config) error {
	remote, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return err
	}
	open := func() (*quic.Transport, error) {
		socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return nil, err
		}
		return &quic.Transport{Conn: socket}, nil
	}
	first, err := open()
	if err != nil {
		return err
	}
	defer first.Close()
	conn, err := first.Dial(ctx, remote, config, quicConfig())
	if err != nil {
		return err
	}
	defer conn.CloseWithError(0x100, "")
	client := transport(config).NewClientConn(conn)
	reader, writer := io.Pipe()
	request, err := http.NewRequestWithContext(ctx, "POST", "https://"+address+"/echo", reader)
	if err != nil {
		return err
	}
	response, err := client.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data := pattern(256 << 10)
	for n := range 6 {
		if n == 3 {
			second, err := open()
			if err != nil {
				return err
			}
			defer second.Close()
			path, err := conn.AddPath(second)
			if err != nil {
				return err
			}
			if err := path.Probe(ctx); err != nil {
				return fmt.Errorf("probe: %w", err)
			}
			if err := path.Switch(); err != nil {
				return fmt.Errorf("switch: %w", err)
			}
		}
		go writer.Write(data)
		back := make([]byte, len(data))
		if _, err := io.ReadFull(response.Body, back); err != nil {
			return fmt.Errorf("part %d: %w", n, err)
		}
		if !bytes.Equal(back, data) {
			return fmt.Errorf("part %d is not what was sent", n)
		}
	}
	return writer.Close()
}
