// Command cpu does the work of crates/kcp/benches/cpu.rs with kcp-go 5.6.72. Each line of standard input is a workload and
// for how many milliseconds to do it; each line of output is what came of it. With the argument `serve` it is the listener of
// crates/kcp/benches/scale.rs.
package main

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/xtaci/kcp-go/v5"
)

// What the library keeps to itself but its own benchmarks measure.

//go:linkname newEncoder github.com/xtaci/kcp-go/v5.newFECEncoder
func newEncoder(data, parity, offset int) unsafe.Pointer

//go:linkname encode github.com/xtaci/kcp-go/v5.(*fecEncoder).encode
func encode(encoder unsafe.Pointer, packet []byte, rto uint32) [][]byte

//go:linkname newDecoder github.com/xtaci/kcp-go/v5.newFECDecoder
func newDecoder(data, parity int) unsafe.Pointer

//go:linkname decode github.com/xtaci/kcp-go/v5.(*fecDecoder).decode
func decode(decoder unsafe.Pointer, packet []byte) [][]byte

//go:linkname flush github.com/xtaci/kcp-go/v5.(*KCP).flush
func flush(k *kcp.KCP, kind kcp.FlushType) uint32

//go:linkname now github.com/xtaci/kcp-go/v5.currentMs
func now() uint32

//go:linkname pool github.com/xtaci/kcp-go/v5.defaultBufferPool
var pool unsafe.Pointer

//go:linkname put github.com/xtaci/kcp-go/v5.(*bufferPool).Put
func put(pool unsafe.Pointer, buffer []byte) error

//go:linkname fillRand github.com/xtaci/kcp-go/v5.fillRand
func fillRand(p []byte)

const (
	size   = 1500
	data   = 10
	parity = 3
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

// cpuTime is the process's user and system time in seconds: what others on the machine take does not count.
func cpuTime() float64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

// repeat calls work, which does so many units, until the time is over, and returns units per second of CPU.
func repeat(length time.Duration, units float64, work func()) float64 {
	for start := time.Now(); time.Since(start) < length/10; {
		work()
	}
	count := 0
	before := cpuTime()
	for start := time.Now(); time.Since(start) < length; {
		for i := 0; i < 8; i++ {
			work()
		}
		count += 8
	}
	return float64(count) * units / (cpuTime() - before)
}

// loss is the same in both programs: one packet of thirteen, by a generator.
type loss uint32

func (l *loss) next() bool {
	*l = *l*1664525 + 1013904223
	return (*l>>16)%(data+parity) == 0
}

func fecEncode(length time.Duration) float64 {
	encoder := newEncoder(data, parity, 0)
	packet := make([]byte, size)
	return repeat(length, size/1e6, func() { encode(encoder, packet, 200) })
}

func fecDecode(length time.Duration) float64 {
	// A run of real groups whose numbers are moved on each time round.
	const groups = 64
	encoder := newEncoder(data, parity, 0)
	var packets [][]byte
	for i := 0; i < groups*data; i++ {
		packet := make([]byte, size)
		for j := range packet {
			packet[j] = byte(i*7 + j)
		}
		parities := encode(encoder, packet, 200)
		packets = append(packets, packet)
		for _, p := range parities {
			packets = append(packets, append([]byte(nil), p...))
		}
	}
	decoder := newDecoder(data, parity)
	lost, number, at := loss(1), uint32(0), 0
	return repeat(length, size/1e6, func() {
		packet := packets[at]
		binary.LittleEndian.PutUint32(packet, number)
		number++
		if at++; at == len(packets) {
			at = 0
		}
		if lost.next() {
			return
		}
		for _, r := range decode(decoder, packet) {
			put(pool, r)
		}
	})
}

func block(name string) kcp.BlockCrypt {
	k := make([]byte, 32)
	for i := range k {
		k[i] = byte(i)
	}
	switch name {
	case "none":
		return must(kcp.NewNoneBlockCrypt(k))
	case "aes":
		return must(kcp.NewAESBlockCrypt(k))
	case "aes-192":
		return must(kcp.NewAESBlockCrypt(k[:24]))
	case "aes-128":
		return must(kcp.NewAESBlockCrypt(k[:16]))
	case "blowfish":
		return must(kcp.NewBlowfishBlockCrypt(k))
	case "twofish":
		return must(kcp.NewTwofishBlockCrypt(k))
	case "cast5":
		return must(kcp.NewCast5BlockCrypt(k[:16]))
	case "3des":
		return must(kcp.NewTripleDESBlockCrypt(k[:24]))
	case "tea":
		return must(kcp.NewTEABlockCrypt(k[:16]))
	case "xtea":
		return must(kcp.NewXTEABlockCrypt(k[:16]))
	case "sm4":
		return must(kcp.NewSM4BlockCrypt(k[:16]))
	case "salsa20":
		return must(kcp.NewSalsa20BlockCrypt(k))
	case "xor":
		return must(kcp.NewSimpleXORBlockCrypt(k))
	}
	panic(name)
}

// seal does what a session does to each packet out and in: nonce, checksum, encrypt; decrypt, checksum.
func seal(name string, length time.Duration) float64 {
	packet := make([]byte, size)
	if name == "aes-128-gcm" {
		gcm := must(cipher.NewGCM(must(aes.NewCipher(make([]byte, 16)))))
		return repeat(length, size/1e6, func() {
			fillRand(packet[:12])
			gcm.Seal(packet[:12], packet[:12], packet[12:size-16], nil)
			must(gcm.Open(packet[12:12], packet[:12], packet[12:], nil))
		})
	}
	b := block(name)
	return repeat(length, size/1e6, func() {
		fillRand(packet[:16])
		binary.LittleEndian.PutUint32(packet[16:], crc32.ChecksumIEEE(packet[20:]))
		b.Encrypt(packet, packet)
		b.Decrypt(packet, packet)
		if binary.LittleEndian.Uint32(packet[16:]) != crc32.ChecksumIEEE(packet[20:]) {
			panic("checksum")
		}
	})
}

// flushes returns how many flushes a second a control block with 1024 segments in flight, none of them due, can do.
func flushes(length time.Duration) float64 {
	k := kcp.NewKCP(1, func([]byte, int) {})
	k.WndSize(1024, 1024)
	k.NoDelay(1, 10, 2, 1)
	// A window and an acknowledgement that took a minute: a wide peer, and timeouts far away.
	segment := make([]byte, 24)
	binary.LittleEndian.PutUint32(segment, 1)
	segment[4] = 82
	binary.LittleEndian.PutUint16(segment[6:], 2048)
	binary.LittleEndian.PutUint32(segment[8:], now()-50000)
	k.Input(segment, kcp.IKCP_PACKET_REGULAR, false)
	for i := 0; i < 1024; i++ {
		k.Send(make([]byte, 1000))
	}
	flush(k, kcp.IKCP_FLUSH_FULL)
	return repeat(length, 1, func() { flush(k, kcp.IKCP_FLUSH_FULL) })
}

func tune(s *kcp.UDPSession) {
	s.SetStreamMode(true)
	s.SetWindowSize(1024, 1024)
	s.SetNoDelay(1, 10, 2, 1)
	s.SetMtu(1400)
	s.SetACKNoDelay(false)
}

// transfer writes messages of so many bytes as fast as it can; the speed is counted at the receiver, which is the writer
// itself with an echo. kcp-go's own benchmarks use the same ciphers, FEC and windows.
func transfer(message int, echo bool, length time.Duration) float64 {
	var b kcp.BlockCrypt
	d, p := 0, 0
	if echo {
		b, d, p = block("salsa20"), data, parity
	}
	listener := must(kcp.ListenWithOptions("127.0.0.1:0", b, d, p))
	defer listener.Close()
	check(listener.SetReadBuffer(4 << 20))
	check(listener.SetWriteBuffer(4 << 20))
	client := must(kcp.DialWithOptions(listener.Addr().String(), b, d, p))
	defer client.Close()
	check(client.SetReadBuffer(4 << 20))
	check(client.SetWriteBuffer(4 << 20))
	tune(client)
	go func() {
		out := make([]byte, message)
		for {
			if _, err := client.Write(out); err != nil {
				return
			}
		}
	}()
	server := must(listener.AcceptKCP())
	defer server.Close()
	tune(server)
	receiver := server
	if echo {
		go func() {
			buffer := make([]byte, 512*1024)
			for {
				n, err := server.Read(buffer)
				if err != nil {
					return
				}
				if _, err := server.Write(buffer[:n]); err != nil {
					return
				}
			}
		}()
		receiver = client
	}
	buffer := make([]byte, 1<<20)
	count, warm := 0, time.Now().Add(length/10)
	start := warm
	for {
		n := must(receiver.Read(buffer))
		at := time.Now()
		if at.Before(warm) {
			start = at
			continue
		}
		count += n
		if at.Sub(start) > length {
			return float64(count) / 1e6 / at.Sub(start).Seconds()
		}
	}
}

// serve listens, says its port, reads all sessions, and closes those that say 2.
func serve() {
	listener := must(kcp.ListenWithOptions("127.0.0.1:0", block("aes-128"), 0, 0))
	check(listener.SetReadBuffer(4 << 20))
	check(listener.SetWriteBuffer(4 << 20))
	fmt.Println(listener.Addr().(*net.UDPAddr).Port)
	for {
		session := must(listener.AcceptKCP())
		session.SetStreamMode(true)
		session.SetWindowSize(128, 512)
		session.SetNoDelay(1, 20, 2, 1)
		go func() {
			defer session.Close()
			buffer := make([]byte, 64)
			for {
				n, err := session.Read(buffer)
				if err != nil || bytes.IndexByte(buffer[:n], 2) >= 0 {
					return
				}
			}
		}()
	}
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		serve()
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		name, millis, _ := strings.Cut(lines.Text(), " ")
		length := time.Duration(must(strconv.Atoi(millis))) * time.Millisecond
		result := 0.0
		switch name {
		case "fec-encode":
			result = fecEncode(length)
		case "fec-decode":
			result = fecDecode(length)
		case "flush":
			result = flushes(length)
		case "echo":
			result = transfer(4096, true, length)
		case "sink":
			result = transfer(65536, false, length)
		default:
			result = seal(strings.TrimPrefix(name, "seal-"), length)
		}
		fmt.Println(result)
	}
	if err := lines.Err(); err != nil && err != io.EOF {
		panic(err)
	}
}
